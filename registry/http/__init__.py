"""Confluent's HTTP interface: addresses, content types, and who may do what."""
