"""Reading from the object store: windows that are fetched ahead, and a cache on the disk."""
