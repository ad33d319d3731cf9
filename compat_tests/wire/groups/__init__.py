"""Requests of groups, as bytes, on Ottla and on Apache Kafka."""
