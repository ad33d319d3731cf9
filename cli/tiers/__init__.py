"""The object store of tiered topics: `ottla tier`, and `ottla fsck --remote`."""
