"""Where a read begins and ends: offsets and times, for all partitions or for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.pipeline.client import EARLIEST, LATEST, TopicPartition
from ottla.pipeline.errors import OptionError
from ottla.pipeline.options.texts import is_int, json_object, number_of

__all__ = ["Offsets", "Positions", "parse_positions", "positions_of", "refuse_empty_batch"]

Offsets = dict[TopicPartition, int]


class Positions(NamedTuple):
    """Where to begin, or to end, as the options say it.

    `offsets` are exact ones, or `EARLIEST` and `LATEST`, by partition; `timestamps_ms` are times by partition;
    `everywhere` and `everywhere_ms` hold for all partitions. Times count before offsets.
    """

    everywhere: int = LATEST
    everywhere_ms: int | None = None
    timestamps_ms: Offsets | None = None
    offsets: Offsets | None = None


def positions_of(given: Mapping[str, str], which: str, default: int) -> Positions:
    """What the options whose names begin with `which`, starting or ending, say."""
    everywhere_ms = None
    timestamps_ms = None
    if (text := given.get(f"{which}timestamp")) is not None:
        everywhere_ms = number_of(f"{which}Timestamp", text)
        if everywhere_ms < 0:
            raise OptionError(f"Option {which}Timestamp is {text}: write milliseconds since 1970.")
    if (text := given.get(f"{which}offsetsbytimestamp")) is not None:
        timestamps_ms = parse_positions(f"{which}OffsetsByTimestamp", text, least=0)
    text = given.get(f"{which}offsets")
    if text is None:
        return Positions(default, everywhere_ms, timestamps_ms)
    ends = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in ends:
        return Positions(ends[text.lower()], everywhere_ms, timestamps_ms)
    return Positions(default, everywhere_ms, timestamps_ms, parse_positions(f"{which}Offsets", text, least=EARLIEST))


def parse_positions(name: str, text: str, *, least: int) -> Offsets:
    """Read Spark's JSON of numbers by partition, `{"topic":{"0":23,"1":-2}}`."""
    example = '{"topic":{"0":23,"1":42}}' + ("" if least >= 0 else ", -2 for the earliest and -1 for the latest offset")
    found = {}
    for topic, parts in json_object(name, text, example).items():
        if not isinstance(parts, dict):
            raise OptionError(f"Option {name} has {topic!r}: {parts!r}; write {example}.")
        for partition, number in parts.items():
            if not (partition.isascii() and partition.isdigit() and is_int(number) and number >= least):
                raise OptionError(f"Option {name} has {partition!r}: {number!r} for topic {topic!r}; write {example}.")
            found[TopicPartition(topic, int(partition))] = number
    return found


def refuse_empty_batch(starting: Positions, ending: Positions) -> None:
    """OptionError for a batch read that could have nothing to read, as the connector refuses it."""
    if LATEST in _ends_of(starting):
        raise OptionError(
            "A batch read cannot start at the latest offset, where there is nothing: change startingOffsets."
        )
    if EARLIEST in _ends_of(ending):
        raise OptionError("A batch read cannot end at the earliest offset, before all records: change endingOffsets.")


def _ends_of(positions: Positions) -> Iterable[int]:
    if positions.everywhere_ms is not None or positions.timestamps_ms is not None:
        return ()
    return (positions.everywhere,) if positions.offsets is None else positions.offsets.values()
