"""Consumers that live here for clients that ask by HTTP."""
