"""How Spark says how much a batch may take. Python sources are asked since Spark 4.2.

Before, in 4.0 and 4.1, there are no such classes: each batch takes all that is there.
"""

from __future__ import annotations

__all__ = [
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]

HAS_READ_LIMITS = True
"""Whether Spark says where a batch begins, and how much it may take."""

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    HAS_READ_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """Never asked for there."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """What those versions always mean."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Never asked for there."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """Never asked for there."""

        def __init__(self, min_rows: int) -> None:
            self.min_rows = min_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Those versions take what `latestOffset` says first as the end."""
