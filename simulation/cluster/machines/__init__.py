"""Machines, their network, their way to the metadata store, and processes that stand still."""
