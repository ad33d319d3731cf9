"""What the server raises about a connection rather than about one request's answer; and errors kept as results."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class ServerError(Exception):
    """Base of what the broker raises on purpose outside storage, metadata, replica manager and coordinators."""


class CloseConnectionError(ServerError):
    """The connection has to end: its peer broke the protocol, or Kafka answers this case by closing.

    The text is the one log line that an operator reads. Never a bug of ours: those are answered and logged in full.
    """


class StartupError(ServerError):
    """The broker cannot start; the text says why and what to do about it."""


def kept(error: E) -> E:
    """The same exception without the frames that it was raised in, and without what it was raised for.

    Kept with them, as one of many results, it would be a circle with the frame that holds the results: a kilobyte for
    each, which only the garbage collector finds, and that hardly ever runs.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
