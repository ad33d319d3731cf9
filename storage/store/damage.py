"""What is known to be damaged or lost in the files of a node: logged once, and kept in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Damage", "KnownDamage"]

logger = logging.getLogger(__name__)

_KEPT: Final = 1000


class Damage(NamedTuple):
    """A place in a file that cannot be read, or a file that is gone (-1); and what that means, as a sentence."""

    path: str
    position: int
    message: str


class KnownDamage:
    """The damage that was found since the start, at most 1,000 places; each is one line in the log.

    It is known by file and position, so that a client which asks for the same record again and again does not fill
    the log. Damage in a file that is removed is forgotten.
    """

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], Damage] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Damage]:
        return iter(list(self._places.values()))

    def found(self, path: str, position: int, message: str) -> bool:
        """Damage was found; returns whether it is new, in which case it is logged."""
        key = path, position
        if key in self._places:
            return False
        if len(self._places) >= _KEPT:
            del self._places[next(iter(self._places))]
        self._places[key] = Damage(path, position, message)
        logger.error("%s", message, extra={"path": path, "position": position})
        return True

    def forget(self, path: str) -> None:
        """A file is removed, and its damage with it."""
        for key in [key for key in self._places if key[0] == path]:
            del self._places[key]
