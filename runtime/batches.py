"""Many callers, one request at a time: what comes while one is under way goes out with the next one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")


class Batches(Generic[T, R]):
    """Sends what callers bring by `send`, which answers each item of a batch in its place.

    A batch holds `max_items` at most. The callers' own tasks send: the one whose turn it is takes the others' items
    along. If it is cancelled, or `send` raises, the others send their items again; so `send` must tolerate duplicates.
    """

    def __init__(self, send: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, max_items: int) -> None:
        self._send = send
        self._max_items = max_items
        self._turn = trio.Lock()
        self._waiting: OrderedDict[_Item[T, R], None] = OrderedDict()

    async def call(self, value: T) -> R:
        """The answer to one item; raises what `send` raised when this caller sent."""
        item = _Item[T, R](value)
        self._waiting[item] = None
        try:
            async with self._turn:
                if not item.answers:
                    await self._send_with(item)
        finally:
            self._waiting.pop(item, None)
        return item.answers[0]

    async def _send_with(self, item: _Item[T, R]) -> None:
        self._waiting.pop(item, None)
        batch = [item]
        while self._waiting and len(batch) < self._max_items:
            batch.append(self._waiting.popitem(last=False)[0])
        answers = await self._send([it.value for it in batch])
        for it, answer in zip(batch, answers, strict=True):
            it.answers = (answer,)


class _Item(Generic[T, R]):
    __slots__ = ("answers", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        #: One, once it is here.
        self.answers: tuple[R, ...] = ()
