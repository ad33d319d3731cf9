"""The content of a partition of `__consumer_offsets`: groups and committed offsets."""
