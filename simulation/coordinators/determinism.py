"""What makes a seed replay: Trio's order of tasks, the time that the coordinators measure, made-up ids."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import trio

from ottla.coordinator.group.classic import protocol as classic
from ottla.runtime import time_slice
from ottla.simulation.harness.scheduling import ids, scheduled
from ottla.simulation.harness.threads import replaced

NEW_MEMBER_JOIN_TIMEOUT_MS = 10_000
"""Five minutes would be most of a seed's time."""


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """While this is open, `trio.run` with a mock clock does the same in every process that has this seed.

    It does so in the thread that opens this; nothing changes for brokers that run in others.
    """
    with (
        scheduled(seed),
        replaced(uuid, "uuid4", ids(seed)),
        replaced(time_slice, "perf_counter", trio.current_time),
        mock.patch.object(classic, "NEW_MEMBER_JOIN_TIMEOUT_MS", NEW_MEMBER_JOIN_TIMEOUT_MS),
    ):
        yield
