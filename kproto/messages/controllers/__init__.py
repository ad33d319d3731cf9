"""Messages of Kafka's brokers and controllers among themselves."""
