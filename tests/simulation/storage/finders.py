"""Which seeds find the planted faults of `test_planted_faults`."""

from __future__ import annotations

from typing import Final

LAST_FOUND_BY: Final = {
    "a flush does not sync": 21,
    "a recovery believes what it reads": 6,
    "a truncation leaves the tail in memory": 6,
    "a descriptor is closed under its reader": 0,
    "a store is closed under the block that is being written": 0,
    "partitions are deleted under the block that is being written": 5,
    "compaction leaves the tail in memory as it was": 73,
    "a deleted topic's flush timer rings": 6,
    "a deleted topic is cleaned": 8,
}
"""The seeds that found these last, of those that take several: where they still do, those before need not be tried."""
