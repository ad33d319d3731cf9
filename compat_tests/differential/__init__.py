"""Differential testing: random histories of requests, to Ottla and to Apache Kafka, and their answers compared."""
