"""Metrics that clients have pushed, as series of numbers: bounded in number and in the length of their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.kproto.otlp import DataPoint

MAX_LABEL_LENGTH: Final = 200
MAX_ATTRIBUTES: Final = 16


class Series(NamedTuple):
    """A metric of a client with its attributes, as `key=value` and commas."""

    name: str
    attributes: str


class Pushed:
    """The series of one client. `counters` only grow; `gauges` are as they were pushed last."""

    __slots__ = ("counters", "gauges")

    def __init__(self) -> None:
        self.gauges: dict[Series, float] = {}
        self.counters: dict[Series, float] = {}

    def __len__(self) -> int:
        return len(self.gauges) + len(self.counters)

    def take(self, points: Iterable[DataPoint], may_grow: Callable[[], bool]) -> int:
        """Enter data points; returns how many there was no room for. `may_grow` takes room for one more series."""
        dropped = 0
        for point in points:
            series = Series(point.name[:MAX_LABEL_LENGTH], _label(point))
            kept = self.counters if point.is_sum else self.gauges
            if series not in kept and not may_grow():
                dropped += 1
            elif point.is_delta:
                kept[series] = kept.get(series, 0.0) + point.value
            else:
                kept[series] = point.value
        return dropped


def _label(point: DataPoint) -> str:
    pairs = (f"{key}={value}" for key, value in point.attributes[:MAX_ATTRIBUTES])
    return ",".join(pair[:MAX_LABEL_LENGTH] for pair in pairs)
