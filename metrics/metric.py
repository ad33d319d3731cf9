"""Metrics, each with its name, kind, labels and help; and families, which are metrics with their samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ottla.storage.histogram import Histogram

Labels: TypeAlias = tuple[str, ...]
Sample: TypeAlias = "tuple[Labels, float | Histogram]"


class Metric(NamedTuple):
    """A declared metric. `kind` is gauge, counter or histogram; a counter's name ends in `_total`."""

    name: str
    kind: str
    help: str
    labels: Labels = ()


class Family(NamedTuple):
    """A metric with its samples, each with the values of the labels; they may be made while they are read."""

    metric: Metric
    samples: Iterable[Sample]


def gauge(name: str, text: str, *labels: str) -> Metric:
    """A number that rises and falls."""
    return Metric(name, "gauge", text, labels)


def counter(name: str, text: str, *labels: str) -> Metric:
    """A number that only rises, from zero at the start of the process."""
    return Metric(name, "counter", text, labels)


def histogram(name: str, text: str, *labels: str) -> Metric:
    """Durations in seconds, by classes."""
    return Metric(name, "histogram", text, labels)


def single(metric: Metric, value: float) -> Family:
    """A family without labels."""
    return Family(metric, [((), value)])
