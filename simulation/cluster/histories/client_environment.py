"""What clients have to know of the world that they live in: a simulated one, or one of real processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Protocol

import trio

from ottla.simulation.cluster.histories.history import History

__all__ = ["ClientEnvironment", "Connect"]

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Connects to a host and port. OSError if that fails."""


class ClientEnvironment(Protocol):
    """A cluster that clients speak to, and the accounts of what they do and see."""

    rng: Random
    history: History
    #: Clients begin nothing new any more.
    is_ending: bool
    #: Topics are tiered, and the object store may fail.
    is_tiered: bool

    @property
    def addresses(self) -> Mapping[int, tuple[str, int]]:
        """Where each node is reached at first, by its id."""
        ...

    def new_client(self) -> Connect:
        """The way to the nodes for one more client."""
        ...

    def note(self, text: str) -> None:
        """Note what happens."""
        ...

    def fail(self, finding: str, cause: BaseException | None = None) -> None:
        """The cluster did what it must not do."""
        ...

    def check(self, condition: bool, finding: str) -> None:
        """Fail if this does not hold."""
        ...
