"""A page out of a long list: the next so many names in order, found in slices of the loop's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappush, heappushpop
from typing import NamedTuple

from ottla.console.rendering import Slices


class Selection(NamedTuple):
    """A page of names in order; `next_after` is where the page that follows goes on, None on the last one."""

    names: list[str]
    next_after: str | None
    total: int


class _Descending(str):
    """Turns the heap around: the largest name first."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


async def select(names: Iterable[str], *, matches: Callable[[str], bool], after: str | None, limit: int) -> Selection:
    """The first `limit` matching names beyond `after`, and how many match at all.

    Sorting ten thousand names would hold the loop; this looks at each once, in slices.
    """
    heap: list[_Descending] = []
    slices = Slices()
    total = 0
    for name in names:
        if slices.over:
            await slices.rest()
        if not matches(name):
            continue
        total += 1
        if after is not None and name <= after:
            continue
        if len(heap) <= limit:
            heappush(heap, _Descending(name))
        else:
            heappushpop(heap, _Descending(name))
    found = sorted(map(str, heap))
    has_more = len(found) > limit
    page = found[:limit]
    return Selection(page, page[-1] if has_more else None, total)
