"""Choosing what is listed one by one, where there is too much to list."""

from __future__ import annotations

from operator import itemgetter
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MAX_UNSORTED: Final = 256


class FirstByName(Generic[T]):
    """The first `limit` of what is added, in order of name. Adding takes little time, however much there is."""

    __slots__ = ("_added", "_first", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._first: list[tuple[str, T]] = []
        self._added: list[tuple[str, T]] = []

    def add(self, name: str, item: T) -> None:
        """One more; names are distinct."""
        self._added.append((name, item))
        if len(self._added) >= _MAX_UNSORTED:
            self._choose()

    def items(self) -> list[tuple[str, T]]:
        """The first of what was added."""
        self._choose()
        return self._first

    def _choose(self) -> None:
        self._first = sorted([*self._first, *self._added], key=itemgetter(0))[: self._limit]
        self._added = []
