"""What stands in the files of a store, byte for byte. See `docs/storage-format.md`."""
