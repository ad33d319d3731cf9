"""Brokers, features, and what stands for a KRaft quorum."""
