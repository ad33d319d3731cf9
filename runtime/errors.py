"""Why a broker does not start, what ends a connection, and errors that are kept as results."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class StartupError(Exception):
    """The broker cannot start; the text says why and what to do about it."""


class ListenError(StartupError):
    """An address cannot be listened at. `is_taken`: because somebody else does."""

    def __init__(self, where: str, reason: str, advice: str, *, is_taken: bool = False) -> None:
        super().__init__(f"cannot listen on {where}: {reason} ({advice})")
        self.reason = reason
        self.advice = advice
        self.is_taken = is_taken


def kept(error: E) -> E:
    """The same exception without the frames that it was raised in, and without what it was raised for.

    Kept with them, as one of many results, it would be a circle with the frame that holds the results: a kilobyte for
    each, which only the garbage collector finds, and that hardly ever runs.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


class CloseConnectionError(Exception):
    """The connection has to end: its peer broke the protocol, or Kafka answers this case by closing.

    The text is the one log line that an operator reads. Never a bug of ours: those are answered and logged in full.
    """
