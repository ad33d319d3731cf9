"""What the tests of clusters share: see tests/clusters.py."""

from __future__ import annotations

from tests.clusters import run_cluster

__all__ = ["run_cluster"]
