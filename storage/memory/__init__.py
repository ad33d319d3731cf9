"""Pooled memory, and chains of views of it."""
