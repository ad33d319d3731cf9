"""The engine's own limits made small, so that what happens once in a day happens in every seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from random import Random
from typing import Any, Final

from ottla.runtime import time_slice
from ottla.runtime.time_slice import SLICE_SECONDS
from ottla.simulation.harness.threads import replaced

__all__ = ["cramped"]

# Module, constant, small value. A constant that one module imports by name from another is listed for both.
_LIMITS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("storage.reading.reader", "_SCAN_BYTES", 600),
    ("storage.reading.reader", "STEP_BYTES", 300),
    ("storage.reading.file_read", "STEP_BYTES", 300),
    ("storage.store.memstore", "JOINED_BATCHES", 3),
    ("storage.store.block_writer", "_MAX_IN_PLACE_GROUPS", 1),
    ("storage.upkeep.cleaner", "_LOGS_A_CALL", 1),
    ("storage.upkeep.reclaim", "_STEP_BYTES", 500),
    ("storage.upkeep.segment_rewrite", "_BLOCK_BYTES", 1000),
    ("runtime.time_slice", "CHUNK_ELEMENTS", 1),
    ("storage.store.checkpoint", "CHUNK_ELEMENTS", 1),
    ("storage.reading.read_ahead", "_FOLLOWED_LOGS", 2),
    ("storage.reading.read_ahead", "_KNOWN_EXTENTS", 8),
    ("storage.reading.read_ahead", "_AHEAD_BYTES", 500),
    ("storage.reading.prefetch", "_HELD_BYTES", 3000),
    ("storage.reading.prefetch", "_LEAST_BYTES", 100),
    ("storage.reading.extents", "_MAX_EXTENTS", 2),
    ("storage.format.sealed_index", "PAGE_ENTRIES", 2),
)


@contextmanager
def cramped(rng: Random) -> Iterator[None]:
    """For one seed make some of the limits small, or none. AttributeError if the engine has no such limit any more.

    The clock that ends a slice of time is moved by each look at it: by a part of a slice, or by more than one.
    """
    share = rng.choice((0.0, 0.3, 1.0))
    chosen = [limit for limit in _LIMITS if rng.random() < share]
    before = []
    for name, constant, value in chosen:
        module = import_module(f"ottla.{name}")
        before.append((module, constant, getattr(module, constant)))
        setattr(module, constant, value)
    look_s = rng.choice((SLICE_SECONDS / 50, SLICE_SECONDS / 3, 2 * SLICE_SECONDS))
    looks = count()
    try:
        with replaced(time_slice, "perf_counter", lambda: next(looks) * look_s):
            yield
    finally:
        for module, constant, value in before:
            setattr(module, constant, value)
