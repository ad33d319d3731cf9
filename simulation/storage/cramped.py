"""The engine's own limits made small, so that what happens once in a day happens in every seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from random import Random
from typing import Any, Final

__all__ = ["cramped"]

# Module, constant, small value. A constant that one module imports by name from another is listed for both.
_LIMITS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("reading.reader", "_SCAN_BYTES", 600),
    ("reading.reader", "_PREPARED_AT_ONCE", 1),
    ("reading.reader", "STEP_BYTES", 300),
    ("reading.file_read", "STEP_BYTES", 300),
    ("store.tail_cache", "_EVICTED_AT_ONCE", 1),
    ("store.memstore", "JOINED_BATCHES", 3),
    ("store.block_writer", "_PUBLISH_SLICE", 1),
    ("store.block_writer", "_MAX_IN_PLACE_GROUPS", 1),
    ("upkeep.cleaner", "_SLICE", 1),
    ("upkeep.reclaim", "_SLICE", 1),
    ("upkeep.reclaim", "_STEP_BYTES", 500),
    ("upkeep.segment_rewrite", "_BLOCK_BYTES", 1000),
    ("store.checkpoint", "_SLICE", 1),
    ("format.checkpoint", "_PACKED_AT_ONCE", 1),
    ("reading.read_ahead", "_FOLLOWED_LOGS", 2),
    ("reading.read_ahead", "_KNOWN_EXTENTS", 8),
    ("reading.read_ahead", "_AHEAD_BYTES", 500),
    ("reading.prefetch", "_HELD_BYTES", 3000),
    ("reading.prefetch", "_LEAST_BYTES", 100),
    ("reading.extents", "_MAX_EXTENTS", 2),
    ("format.sealed_index", "PAGE_ENTRIES", 2),
)


@contextmanager
def cramped(rng: Random) -> Iterator[None]:
    """For one seed make some of the limits small, or none. AttributeError if the engine has no such limit any more."""
    share = rng.choice((0.0, 0.3, 1.0))
    chosen = [limit for limit in _LIMITS if rng.random() < share]
    before = []
    for name, constant, value in chosen:
        module = import_module(f"ottla.storage.{name}")
        before.append((module, constant, getattr(module, constant)))
        setattr(module, constant, value)
    try:
        yield
    finally:
        for module, constant, value in before:
            setattr(module, constant, value)
