"""The work on one request: counted in elements, done in slices, and large requests one after the other.

An element is what an array holds, of the request or of its answer: a name, a number, a partition. As an object it takes
up to a hundred times the memory that it took on the wire, and microseconds of the event loop.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import trio

from ottla.kproto.compiler.layout import STEP_ELEMENTS
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import SupportsRichComparison

#: What may hold many objects.
Container = list[Any] | dict[Any, Any]

R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound="SupportsRichComparison")

#: Work on fewer elements is done at once, without waiting for a place in the queue.
LIGHT_ELEMENTS: Final = 1_000


class Budget(Protocol):
    """Memory that may be spent."""

    @property
    def has_room(self) -> bool: ...

    async def wait_available(self) -> None: ...


class LargeRequestQueue:
    """Lets requests with many elements be worked on one after the other, in the order in which they come. So the memory
    that they take is bounded by the largest of them. The next one waits until the budgets have room.
    """

    def __init__(self, max_elements: Callable[[], int], *budgets: Budget) -> None:
        self.max_elements = max_elements
        self._budgets = budgets
        self._place = trio.Semaphore(1)

    async def enter(self) -> None:
        """Wait for the place; who gets it calls `leave` once."""
        await self._place.acquire()
        try:
            for budget in self._budgets:
                if not budget.has_room:
                    await budget.wait_available()
        except BaseException:
            self._place.release()
            raise

    def leave(self) -> None:
        """Let the next one in."""
        self._place.release()


class Over(Generic[T]):
    """See `Work.over`. Not an async generator, because its end is uncertain when the loop over it is left early."""

    __slots__ = ("_elements", "_items", "_work")

    def __init__(self, work: Work, items: Iterable[T], elements: int) -> None:
        self._work = work
        self._items = iter(items)
        self._elements = elements

    def __aiter__(self) -> Over[T]:
        return self

    async def __anext__(self) -> T:
        for item in self._items:
            await self._work.charge(self._elements)
            return item
        raise StopAsyncIteration


class Work(TimeSlice):
    """The work on one request: its slice of time, and a count. Without a queue it is only counted and sliced."""

    __slots__ = ("_allowed", "_is_in_queue", "_queue", "elements", "left")

    def __init__(self, large_request_queue: LargeRequestQueue | None = None) -> None:
        super().__init__()
        self._queue = large_request_queue
        self._is_in_queue = False
        self._allowed = LIGHT_ELEMENTS
        #: How many elements were worked on.
        self.elements = 0
        #: What was needed on the way and is freed in steps when the answer is made.
        self.left: list[Container] = []

    async def charge(self, elements: int = 1) -> None:
        """Call for each element, or for a few: counts them, and lets others run when a slice of time is used up.

        Raises CloseConnectionError beyond `ottla.request.max.elements`.
        """
        self.elements += elements
        if self.elements > self._allowed:
            await self._enter_queue()
        if self.is_over:
            await self.maybe_yield()

    def is_due(self, elements: int = 1) -> bool:
        """Count these where `charge` cannot be awaited: whether its caller has to await `charge(0)` now."""
        self.elements += elements
        return self.elements > self._allowed or self.is_over

    def over(self, items: Iterable[T], *, counts: bool = True) -> Over[T]:
        """Iterate with `charge` before each item; what was counted when it was parsed does not count again."""
        return Over(self, items, 1 if counts else 0)

    async def sorted(self, items: Iterable[S]) -> Iterator[S]:
        """These in ascending order, duplicates too: sorted in short runs, merged as they are read. Counts none."""
        rest = iter(items)
        runs: list[list[S]] = []
        while run := list(islice(rest, LIGHT_ELEMENTS)):
            run.sort()
            runs.append(run)
            await self.charge(0)
        return merge(*runs)

    async def expect(self, elements: int) -> None:
        """Refuse at once what would be refused later: call with what is known of the answer before it is made."""
        self.elements += elements
        await self.charge(0)
        self.elements -= elements

    async def run(self, steps: Generator[None, None, R], *, elements: int = STEP_ELEMENTS, counts: bool = True) -> R:
        """Do what stops after so many elements."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: R = end.value
                return result
            if self.is_due(elements if counts else 0):
                await self.charge(0)

    def leave(self, *containers: Container) -> None:
        """Let these be emptied in steps when the answer is made: freeing 50,000 objects at once takes tens of ms.

        For lists and dictionaries that hold what was made for this request, and that nobody else keeps.
        """
        self.left += [it for it in containers if len(it) > LIGHT_ELEMENTS]

    def leave_queue(self) -> None:
        """The work that is left does not count, or waits for others. A second call does nothing."""
        if self._is_in_queue:
            assert self._queue is not None
            self._is_in_queue = False
            self._queue.leave()

    def stay_out(self) -> None:
        """Leave the queue for good: what is left to do may wait for others as long as a client says."""
        self.leave_queue()
        self._queue = None

    async def _enter_queue(self) -> None:
        if self._queue is None:
            self._allowed = sys.maxsize
            return
        if not self._is_in_queue:
            await self._queue.enter()
            self._is_in_queue = True
            self.renew()
        self._allowed = self._queue.max_elements()
        if self.elements > self._allowed:
            raise CloseConnectionError(
                f"a request with its answer has more than {self._allowed} elements (ottla.request.max.elements)"
            )
