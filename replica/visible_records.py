"""What a read_committed reader has to be told beside the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.replica.fetch import FetchResult


def aborted_transactions(result: FetchResult) -> Sequence[tuple[int, int]]:
    """The (producer id, first offset) of the aborted transactions among the records, by first offset."""
    records = result.records
    if records is None or not records.size_bytes or result.plan is None:
        return []
    aborted = result.plan.aborted_transactions(result.last_stable_offset)
    if not aborted:
        return []
    end_offset = min(result.plan.next_offset, result.last_stable_offset)
    return [(each.producer_id, each.first_offset) for each in aborted if each.first_offset < end_offset]
