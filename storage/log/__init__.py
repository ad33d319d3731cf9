"""One partition's view of its store."""
