"""What a partition of `__consumer_offsets` holds: groups and committed offsets."""
