"""What makes a seed replay: Trio's order of tasks, the time that the runtime measures, made-up ids."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest import mock

import trio
from trio._core import _run as _trio_run

from ottla.coordinator import replay, runtime
from ottla.coordinator.group.classic import protocol as classic
from ottla.runtime import time_slice

# Trio shuffles its tasks on purpose; here the seed shuffles them.
_trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]

NEW_MEMBER_JOIN_TIMEOUT_MS = 10_000
"""Five minutes would be most of a seed's time."""


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """While this is open, `trio.run` with a mock clock does the same in every process that has this seed."""
    rng = Random(f"ids {seed}")
    _trio_run._r.seed(seed)

    def make_id() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128), version=4)

    with (
        mock.patch.object(uuid, "uuid4", make_id),
        mock.patch.object(time_slice, "perf_counter", trio.current_time),
        mock.patch.object(replay, "perf_counter", trio.current_time),
        mock.patch.object(runtime, "perf_counter", trio.current_time),
        mock.patch.object(classic, "NEW_MEMBER_JOIN_TIMEOUT_MS", NEW_MEMBER_JOIN_TIMEOUT_MS),
    ):
        yield
