"""The same for many, a few at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import trio

from ottla.tiers.errors import TierError

__all__ = ["in_parallel"]

_WORKERS: Final = 8

K = TypeVar("K")
T = TypeVar("T")


async def in_parallel(work: Callable[[K], Awaitable[T]], items: Iterable[K]) -> list[T]:
    """The results of `work` for all items, in their order. The first TierError cancels the rest and is raised alone."""
    results: dict[int, T] = {}
    failures: list[TierError] = []
    waiting = iter(enumerate(items))

    async def worker() -> None:
        for place, item in waiting:
            try:
                results[place] = await work(item)
            except TierError as error:
                failures.append(error)
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(_WORKERS):
            nursery.start_soon(worker)
    if failures:
        raise failures[0]
    return [results[place] for place in sorted(results)]
