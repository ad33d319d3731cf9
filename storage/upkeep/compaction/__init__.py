"""Compaction: keeping the latest record of each key. What is kept is decided here; the engine does the I/O."""
