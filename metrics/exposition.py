"""Prometheus' text format 0.0.4, written in slices: a scrape of ten thousand lines never holds the event loop."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final

from ottla.metrics.metric import Family, Labels, Metric
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.histogram import BOUNDS_SECONDS, Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_CHUNK_CHARACTERS: Final = 32_768
_BOUNDS: Final = tuple(f'le="{bound}"' for bound in (*BOUNDS_SECONDS, "+Inf"))
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


async def render(families: AsyncGenerator[Family, None]) -> AsyncGenerator[bytes, None]:
    """The text of the families, in pieces."""
    time_slice = TimeSlice()
    lines: list[str] = []
    size = 0
    async with aclosing(families):
        async for metric, samples in families:
            lines.append(f"# HELP {metric.name} {_help(metric.help)}\n# TYPE {metric.name} {metric.kind}\n")
            for labels, value in samples:
                for line in _lines(metric, labels, value):
                    lines.append(line)
                    size += len(line)
                if time_slice.is_over:
                    await time_slice.maybe_yield()
                if size > _CHUNK_CHARACTERS:
                    yield _encoded(lines)
                    lines, size = [], 0
            await time_slice.maybe_yield()
    yield _encoded(lines)


def _encoded(lines: list[str]) -> bytes:
    # A group may have any name, even one that UTF-8 cannot write.
    return "".join(lines).encode("utf-8", "replace")


def _lines(metric: Metric, labels: Labels, value: float | Histogram) -> Iterator[str]:
    pairs = [f'{name}="{text.translate(_ESCAPES)}"' for name, text in zip(metric.labels, labels, strict=True)]
    if not isinstance(value, Histogram):
        yield f"{metric.name}{_braced(pairs)} {_number(value)}\n"
        return
    below = 0
    for bound, count in zip(_BOUNDS, value.counts, strict=True):
        below += count
        yield f"{metric.name}_bucket{_braced([*pairs, bound])} {below}\n"
    yield f"{metric.name}_sum{_braced(pairs)} {_number(value.sum_seconds)}\n"
    yield f"{metric.name}_count{_braced(pairs)} {below}\n"


def _braced(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(value)


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
