"""What a tiered topic is to its partitions: the part of a log that is in an object store (KIP-405)."""
