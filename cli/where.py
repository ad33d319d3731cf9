"""A place in a log as people write it: the beginning, the end, an offset, a number before the end, a time."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from ottla.cli import CommandError
from ottla.client.client import Client
from ottla.client.offsets import EARLIEST, LATEST, TopicPartition, offsets_at
from ottla.settings.units import duration_ms

HELP: Final = (
    "beginning, end, now, an offset, -N (N before the end), -1h (or s, m, d, w: so long ago), "
    "a time (2026-01-31T12:00:00Z; without a zone it is local), or s@TIMESTAMP in ms"
)

_BEHIND_A_MINUS: Final = re.compile(r"-[0-9]+(\.[0-9]+)?[a-z]*")


def allow_minus(parser: argparse.ArgumentParser) -> None:
    """Let `-1h` be the value of an option, as argparse allows for `-1`."""
    parser._negative_number_matcher = _BEHIND_A_MINUS  # noqa: SLF001 - there is no other door


def offsets(
    client: Client, partitions: Collection[TopicPartition], where: str, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """The offset of a place in each partition. Times after the last record mean the end.

    Raises CommandError if the text is not a place, or a partition is not there.
    """
    number = _number(where)
    timestamp_ms = None if number is not None else _timestamp_ms(where)

    def ask(timestamp_ms: int) -> Mapping[TopicPartition, int]:
        found = offsets_at(client, partitions, timestamp_ms, read_committed=read_committed)
        missing = next((each for each in partitions if each not in found), None)
        if missing is not None:
            raise CommandError(f"{missing} is not there or has no leader now")
        return found

    if number is not None and not where.startswith("-"):
        return dict.fromkeys(partitions, number)
    if timestamp_ms == EARLIEST:
        return dict(ask(EARLIEST))
    ends = ask(LATEST)
    if number is not None:
        starts = ask(EARLIEST)
        return {each: max(end + number, starts[each]) for each, end in ends.items()}
    if timestamp_ms is None or timestamp_ms == LATEST:
        return dict(ends)
    return {each: ends[each] if offset < 0 else offset for each, offset in ask(timestamp_ms).items()}


def _number(where: str) -> int | None:
    try:
        return int(where)
    except ValueError:
        return None


def _timestamp_ms(where: str) -> int:
    if where in ("beginning", "start", "earliest"):
        return EARLIEST
    if where in ("end", "latest"):
        return LATEST
    if where == "now":
        return int(time.time() * 1000)
    try:
        if where.startswith(("s@", "e@")):
            return max(int(where[2:]), 0)
        if where.startswith("-") and (ago_ms := duration_ms(where[1:])) is not None:
            return max(int(time.time() * 1000) - ago_ms, 0)
        return max(int(datetime.fromisoformat(where).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise CommandError(f"{where!r} is not a place in a log: write {HELP}") from None
