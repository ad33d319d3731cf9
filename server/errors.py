"""Why a broker does not start, and errors that are kept as results."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class StartupError(Exception):
    """The broker cannot start; the text says why and what to do about it."""


def kept(error: E) -> E:
    """The same exception without the frames that it was raised in, and without what it was raised for.

    Kept with them, as one of many results, it would be a circle with the frame that holds the results: a kilobyte for
    each, which only the garbage collector finds, and that hardly ever runs.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
