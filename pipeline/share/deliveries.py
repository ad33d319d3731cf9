"""Which records a share group delivered, and how they are told apart from those that it delivers again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.pipeline.errors import PipelineError

__all__ = [
    "Deliveries",
    "Json",
    "Known",
    "Run",
    "SharePartition",
    "Unsettled",
    "count_of",
    "deliveries_of",
    "joined",
    "left_of",
    "pieces",
    "separated",
    "to_json",
    "unsettled_of",
    "unsettled_to_json",
    "without",
]

Json = dict[str, Any]

_TOPIC: Final = "topic"
_PARTITIONS: Final = "partitions"


class SharePartition(NamedTuple):
    """One partition of a topic, which its id names: a topic that is created again is another one."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Run(NamedTuple):
    """The offsets from `first` to `last`. Their label is how often they were delivered, or an Outcome."""

    first: int
    last: int
    label: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Known(NamedTuple):
    """What the query has committed and could not acknowledge; `outcome` is what it wanted to say of it.

    Delivered again, for the `least`th time at least, it is acknowledged and not worked on again. A lower count comes
    from a group whose offsets were reset, so that the records are wanted again.
    """

    run: Run
    least: int
    outcome: int


Deliveries = dict[SharePartition, list[Run]]
Unsettled = dict[SharePartition, list[Known]]


def count_of(deliveries: Mapping[SharePartition, Sequence[Run]]) -> int:
    """How many offsets they have."""
    return sum(delivery.size for held in deliveries.values() for delivery in held)


def to_json(deliveries: Mapping[SharePartition, Sequence[Run]]) -> Json:
    """As a checkpoint holds them, by the ids of topics; always in the same order."""
    return _by_topic_id({part: [list(each) for each in held] for part, held in deliveries.items()})


def deliveries_of(held: Json) -> Deliveries:
    """The opposite of `to_json`; PipelineError if a checkpoint holds something else."""
    return {part: [Run(*entry) for entry in entries] for part, entries in _entries(held, len(Run._fields))}


def unsettled_to_json(unsettled: Mapping[SharePartition, Sequence[Known]]) -> Json:
    """The same for what is known."""
    return _by_topic_id({part: [[*each.run, each.outcome] for each in held] for part, held in unsettled.items()})


def unsettled_of(held: Json) -> Unsettled:
    """The opposite of `unsettled_to_json`, in another run: the records may come again, for one more time."""
    return {
        part: [Known(Run(*entry[:3]), entry[2] + 1, entry[3]) for entry in entries]
        for part, entries in _entries(held, len(Run._fields) + 1)
    }


def _by_topic_id(entries: Mapping[SharePartition, list[list[int]]]) -> Json:
    found: Json = {}
    for part in sorted(entries):
        topic = found.setdefault(part.topic_id, {_TOPIC: part.topic, _PARTITIONS: {}})
        topic[_PARTITIONS][str(part.partition)] = entries[part]
    return found


def _entries(held: Json, size: int) -> list[tuple[SharePartition, list[list[int]]]]:
    try:
        found = [
            (SharePartition(topic[_TOPIC], topic_id, int(number)), [[*map(int, entry)] for entry in entries])
            for topic_id, topic in held.items()
            for number, entries in topic[_PARTITIONS].items()
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        found = None
    if found is None or any(len(entry) != size for _, entries in found for entry in entries):
        raise PipelineError(
            f"The checkpoint holds {held!r} where deliveries of a share group should be: it belongs to another "
            "source. Use a new checkpointLocation."
        )
    return found


def joined(labelled: Iterable[tuple[int, int]]) -> list[Run]:
    """Offsets in ascending order, each with a number, as runs of successive offsets with the same number."""
    found: list[Run] = []
    for offset, label in labelled:
        if found and found[-1].last + 1 == offset and found[-1].label == label:
            found[-1] = Run(found[-1].first, offset, label)
        else:
            found.append(Run(offset, offset, label))
    return found


def separated(delivered: Sequence[Run], known: Sequence[Known]) -> tuple[list[Run], list[Run]]:
    """What is known and was delivered again, with outcomes in place of counts; and what is to be worked on."""
    if not known:
        return [], list(delivered)
    by_offset = {offset: entry for entry in known for offset in range(entry.run.first, entry.run.last + 1)}
    again: list[tuple[int, int]] = []
    fresh: list[tuple[int, int]] = []
    for delivery in delivered:
        for offset in range(delivery.first, delivery.last + 1):
            entry = by_offset.get(offset)
            if entry is not None and delivery.label >= entry.least:
                again.append((offset, entry.outcome))
            else:
                fresh.append((offset, delivery.label))
    return joined(again), joined(fresh)


def left_of(runs: Sequence[Run], taken: Iterable[Run]) -> list[Run]:
    """The runs without the offsets of others."""
    over = {offset for first, last, _ in taken for offset in range(first, last + 1)}
    return joined((n, label) for first, last, label in runs for n in range(first, last + 1) if n not in over)


def without(known: Sequence[Known], runs: Sequence[Run]) -> list[Known]:
    """What is known of other offsets than those."""
    return [Known(run, least, outcome) for whole, least, outcome in known for run in left_of([whole], runs)]


def pieces(deliveries: Sequence[Run], size: int) -> Iterator[list[Run]]:
    """The same in lists of at most `size` offsets."""
    piece: list[Run] = []
    room = size
    for first, last, count in deliveries:
        while first <= last:
            end = min(last, first + room - 1)
            piece.append(Run(first, end, count))
            room -= end - first + 1
            first = end + 1
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece
