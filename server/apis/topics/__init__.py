"""Topics and partitions."""
