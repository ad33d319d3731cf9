"""Clients behind the proxy."""
