"""Messages about topics and partitions."""
