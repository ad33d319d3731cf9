"""Scans of brokers' data folders."""
