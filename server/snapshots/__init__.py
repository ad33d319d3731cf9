"""What a cluster needs besides its tiered records, copied beside them: `ottla restore --from` makes a cluster of it."""
