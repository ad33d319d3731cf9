"""Data folders without their broker: `ottla fsck`, `dump`, `salvage` and `restore`."""
