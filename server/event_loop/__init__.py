"""Keeping the event loop free: long work in slices, and a watchdog for whatever holds it."""
