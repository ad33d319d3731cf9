"""What the files of a store contain, byte for byte. See `docs/storage-format.md`."""
