"""What producers did, read from a log whose start moves meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import pytest

from ottla.kproto.records import EndTxnMarker, Record, build_batch, build_end_txn_marker
from ottla.storage.log.producer_rebuild import read_producers

BEGINS = build_batch([Record(value=b"x")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
MARKER = EndTxnMarker(producer_id=7, producer_epoch=0, is_commit=True, coordinator_epoch=0)
ENDS = build_end_txn_marker(MARKER, timestamp_ms=1, base_offset=1)
FOLLOWS = build_batch([Record(value=b"y")], producer_id=8, producer_epoch=0, base_sequence=0, base_offset=2)


class Batches(list[memoryview]):
    """What a read gives, to be given back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


class Log:
    """Three batches, one to an offset. `moves_to` is where its start is after the first one was read."""

    def __init__(self, moves_to: int) -> None:
        self.log_start_offset, self.flushed_end_offset = 0, 3
        self.moves_to = moves_to
        self.store = SimpleNamespace(context=SimpleNamespace(offload=self._offload))

    async def _offload(self, function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments)

    async def read_batches(self, log: Any, offset: int, end_offset: int) -> tuple[Batches, int]:
        self.log_start_offset = self.moves_to
        return Batches([memoryview(bytearray((BEGINS, ENDS, FOLLOWS)[offset]))]), offset + 1


@pytest.mark.parametrize("moves_to", [0, 1, 2, 3])
async def test_a_transaction_whose_end_is_passed_over_is_not_open(moves_to: int) -> None:
    """Else the last stable offset would stay where it is until its producer comes back."""
    log: Any = Log(moves_to)
    history = await read_producers(log, log, 3)
    producers = [] if history.producers is None else list(history.producers.active_producers())
    assert not any(each.in_transaction for each in producers)
    assert [each.producer_id for each in producers] == {0: [7, 8], 1: [7, 8], 2: [8], 3: []}[moves_to]
