"""Requests as bytes, on Ottla and on Apache Kafka."""
