"""Confluent's HTTP interface: addresses, content types, and the callers' rights."""
