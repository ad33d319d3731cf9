"""Functions that are simulated in one thread: in the others of the process everything is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar
from unittest import mock

__all__ = ["Divided", "divided", "replaced"]

F = TypeVar("F", bound=Callable[..., Any])


def divided(simulated: F, real: F) -> F:
    """Calls `simulated` in the thread that has called this, and `real` in every other one."""
    own = get_ident()

    def call(*arguments: Any, **named: Any) -> Any:
        return (simulated if get_ident() == own else real)(*arguments, **named)

    return call  # type: ignore[return-value]


class Divided:
    """An object whose attributes are those of `simulated` in the thread that has made it, and else those of `real`."""

    def __init__(self, simulated: object, real: object) -> None:
        self._own = get_ident()
        self._simulated = simulated
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulated if get_ident() == self._own else self._real, name)


@contextmanager
def replaced(owner: Any, name: str, simulated: Callable[..., Any]) -> Iterator[None]:
    """While this is open, this thread calls `simulated` where it calls the function `name` of a module."""
    with mock.patch.object(owner, name, divided(simulated, getattr(owner, name))):
        yield
