"""Scans of tiered topics in an object store, without a broker."""
