"""Committing, fetching, deleting and expiring the offsets of groups."""
