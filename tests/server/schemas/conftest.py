"""A cluster for the tests of what brokers do with the schemas of records: see tests/clusters.py."""

from __future__ import annotations

from tests.clusters import run_cluster

__all__ = ["run_cluster"]
