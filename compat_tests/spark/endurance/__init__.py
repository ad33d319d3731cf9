"""Spark jobs that are killed, and a cluster of Spark: programs that `make` calls."""
