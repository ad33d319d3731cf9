"""Finding and reading a partition's batches in the files of its store."""
