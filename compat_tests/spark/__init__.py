"""Spark, its own Kafka connector and Delta Lake against Ottla and Apache Kafka."""
