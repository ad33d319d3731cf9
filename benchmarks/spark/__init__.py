"""Spark with Ottla's sources and sinks beside its own connector."""
