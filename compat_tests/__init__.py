"""Real clients against Ottla, and the same scenarios against Apache Kafka, the oracle."""
