"""A choice of the attacks in `make test`: what an honest client gets, and the memory. Times are for `make attack`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .attacks import ATTACKS
from .stage import BUDGETS_MIB, suffer

CHOICE = [
    "CreateTopics and CreatePartitions of 2^31-1 partitions",
    "three frames of 95 MB that never end",
    "100 frames of 100 MB that begin with 1 MB",
    "4 million empty names: DescribeGroups, DescribeTransactions, FindCoordinator",
    "100 connections ask for 60 MB twenty times and never read",
    "100 fetches wait for 50 MB",
]
ALLOWED_MIB = BUDGETS_MIB + 150
# Far beyond what is measured: that answers come at all while an attack goes on.
LONGEST_MS = 30_000


@pytest.mark.parametrize("name", CHOICE)
def test_an_honest_client_is_served_and_memory_is_bounded(name: str, tmp_path: Path) -> None:
    suffered = suffer(ATTACKS[name], tmp_path)
    assert suffered.honest_error == ""
    assert suffered.honest_calls > 10
    assert suffered.longest_ms < LONGEST_MS
    assert suffered.peak_mib < ALLOWED_MIB
    assert suffered.tracebacks == 0
