"""A page out of a long list: the next so many names in order, found in slices of the loop's time."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from ottla.console.parameters import number
from ottla.console.rendering import url_of
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T", str, int)

_PAGING: Final = ("after", "beyond", "first")


class Selection(NamedTuple, Generic[T]):
    """A page of names in order. `next_after` and `next_beyond` say where the next one goes on: None on the last one."""

    names: list[T]
    next_after: T | None
    next_beyond: float
    total: int


class Ranking(NamedTuple):
    """The order of a table: by the column that a reader chose, or by name where that is None."""

    column: str | None
    descending: bool
    beyond: float
    """The value at which the page before this one ended."""

    path: str
    query: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, request: Request, columns: Container[str | None]) -> Ranking:
        """The ranking in the address; by name where it names none of the columns."""
        asked = request.query_params.get("sort")
        query = [(name, value) for name, value in request.query_params.items() if name not in ("sort", "asc", *_PAGING)]
        descending = request.query_params.get("asc") != "1"
        column = asked if asked in columns else None
        return cls(column, descending, number(request, "beyond"), request.url.path, tuple(query))

    def address(self, column: str | None) -> str:
        """The page in the order of a column, the largest first; of the column that it is in now, turned around."""
        ascending = 1 if column is not None and column == self.column and self.descending else None
        return url_of(self.path, **{**dict(self.query), "sort": column, "asc": ascending})

    def address_after(self, page: Selection[str] | Selection[int]) -> str:
        """The page that follows another one."""
        beyond = page.next_beyond if self.column is not None else None
        ascending = None if self.column is None or self.descending else 1
        query = {"sort": self.column, "asc": ascending, "after": page.next_after, "beyond": beyond}
        return url_of(self.path, **{**dict(self.query), **query})

    @property
    def first_page(self) -> str:
        """The first page in this order."""
        ascending = None if self.column is None or self.descending else 1
        return url_of(self.path, **{**dict(self.query), "sort": self.column, "asc": ascending})


class _Last:
    """Turns the heap around: what comes last first."""

    __slots__ = ("place",)

    def __init__(self, place: tuple[float, Any]) -> None:
        self.place = place

    def __lt__(self, other: _Last) -> bool:
        return other.place < self.place


async def select(
    names: Iterable[T],
    *,
    matches: Callable[[T], bool],
    after: T | None,
    limit: int,
    value: Callable[[T], float] | None = None,
    descending: bool = True,
    beyond: float = 0.0,
) -> Selection[T]:
    """The first `limit` matching names that follow `after`, and how many match at all.

    They are in the order of `value`, and where that is equal by name. `beyond` is the value of `after`: names whose
    values change while a reader turns the pages may be shown twice or not at all, and nothing else.

    Sorting ten thousand names would hold the loop; this looks at each once, in slices.
    """
    sign = -1.0 if descending else 1.0
    begin = None if after is None else (sign * beyond if value is not None else 0.0, after)
    heap: list[_Last] = []
    slices = TimeSlice()
    total = 0
    for name in names:
        if slices.is_over:
            await slices.maybe_yield()
        if not matches(name):
            continue
        total += 1
        place = (0.0 if value is None else sign * value(name), name)
        if begin is not None and place <= begin:
            continue
        if len(heap) <= limit:
            heappush(heap, _Last(place))
        else:
            heappushpop(heap, _Last(place))
    found = sorted(each.place for each in heap)
    page = found[:limit]
    ended = page[-1] if len(found) > limit else None
    return Selection(
        [name for _, name in page],
        None if ended is None else ended[1],
        0.0 if ended is None else sign * ended[0],
        total,
    )
