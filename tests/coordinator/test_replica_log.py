"""A coordinator's log on the replica manager."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.coordinator.errors import NotCoordinatorError
from ottla.coordinator.replica_log import ReplicaLog
from ottla.storage.errors import LogClosedError
from tests.doubles.one_topic import OneTopic


class MovedAway:
    """A replica whose log is closed in the middle of a read: its partition has moved to other nodes."""

    log_start_offset = 0
    log_end_offset = high_watermark = 9

    async def read_batches(self, offset: int, end_offset: int) -> Any:
        await trio.lowlevel.checkpoint()
        raise LogClosedError("t-0 was closed or deleted")


async def test_a_partition_that_moves_away_while_it_is_read_is_coordinated_elsewhere() -> None:
    """That is no failure of the load: the coordinator resigns when it hears of the change."""
    manager: Any = SimpleNamespace(get_partition=lambda *_: SimpleNamespace(log=MovedAway()))
    with pytest.raises(NotCoordinatorError):
        async for _ in ReplicaLog(manager, OneTopic(UUID(int=1)), "t").read(0):
            pass


class Batch:
    """What was read."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def to_bytes(self) -> bytes:
        return b"batch"


class Uncommitted:
    """A replica whose log holds a batch that is committed when the test says so."""

    log_start_offset = high_watermark = 0
    log_end_offset = 1

    async def read_batches(self, offset: int, end_offset: int) -> Any:
        await trio.lowlevel.checkpoint()
        return Batch(), end_offset


async def test_who_reads_is_told_before_a_read_waits_for_a_commit() -> None:
    """Others may read meanwhile: the wait may be long."""
    log = Uncommitted()
    waits: list[int] = []

    async def wait_committed(_: Any, end_offset: int) -> None:
        await trio.lowlevel.checkpoint()
        waits.append(end_offset)
        log.high_watermark = end_offset

    manager: Any = SimpleNamespace(get_partition=lambda *_: SimpleNamespace(log=log), wait_committed=wait_committed)
    pieces = []
    async for piece in ReplicaLog(manager, OneTopic(UUID(int=1)), "t").read(0):
        pieces.append((bytes(piece), list(waits)))
    assert pieces == [(b"", []), (b"batch", [1])]
