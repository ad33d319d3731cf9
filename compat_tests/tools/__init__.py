"""Apache Kafka's own command-line tools."""
