"""A Kafka client for the command line and the test fixture: blocking, small, and for any Kafka broker."""
