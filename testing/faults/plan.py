"""Faults put into a broker on purpose: requests wait, fail or are lost, or their answers are lost.

A `FaultPlan` holds the rules. A node that has one serves its connections through `FaultyDispatcher`; every other node
has the ordinary `Dispatcher` and pays nothing. Plans belong to the event loop: change them only there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.kproto.schema import Response


Answer = Callable[[Any], "Response | None"]
"""From a request to the answer that a test gives it; None if it is served after all."""


class FaultKind(Enum):
    """What happens to a request."""

    DELAY = "delay"
    """It is served later."""
    ERROR = "error"
    """It is not served but answered with an error code, for everything that it names or for one topic."""
    DROP = "drop"
    """It is not served, and its connection is closed."""
    LOSE_ANSWER = "lose answer"
    """It is served, and its connection is closed instead of the answer: the classic lost acknowledgement."""
    ANSWER = "answer"
    """It is not served but answered with what the test has written."""
    THROTTLE = "throttle"
    """It is served, and the client is told to wait, as if it had exceeded its quota."""


@dataclass(slots=True, eq=False)
class Fault:
    """A rule: what happens to requests of an API (None: all APIs), `times` of them (None: all from now on).

    With `topic` it applies only to requests that name this topic, and with `partition` as well only to those that name
    this partition; an error is then only for that topic or partition.
    """

    kind: FaultKind
    api: ApiKey | None = None
    times: int | None = None
    topic: str | None = None
    partition: int | None = None
    error_code: ErrorCode = ErrorCode.NONE
    delay_ms: float = 0
    jitter_ms: float = 0
    answer: Answer | None = None
    struck: int = field(default=0, init=False)
    """How many requests it has struck."""

    def strike(self) -> None:
        """A request is struck."""
        self.struck += 1

    def take_back(self) -> None:
        """The request is not struck after all."""
        self.struck -= 1

    @property
    def is_spent(self) -> bool:
        return self.times is not None and self.struck >= self.times


class FaultPlan:
    """The rules in force, in the order in which they were added. `seed` decides the jitter."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = Random(seed)
        self._faults: list[Fault] = []
        self._resumed: trio.Event | None = None

    @property
    def is_stalled(self) -> bool:
        return self._resumed is not None

    def add(self, fault: Fault) -> Fault:
        """Add a rule and return it, to look at `struck` or to `remove` it."""
        self._faults.append(fault)
        return fault

    @property
    def unstruck(self) -> list[Fault]:
        """The rules in force that have struck no request: what a test meant to happen may never have."""
        return [fault for fault in self._faults if not fault.struck]

    def remove(self, fault: Fault) -> None:
        """Lift a rule, if it is still in force."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        """Lift every rule, and end a stall."""
        self._faults.clear()
        self.resume()

    def stall(self) -> None:
        """Serve no request until `resume`: the broker accepts connections and says nothing."""
        if self._resumed is None:
            self._resumed = trio.Event()

    def resume(self) -> None:
        """End a stall: waiting requests are served."""
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    async def wait_resumed(self) -> None:
        """Wait until there is no stall."""
        while self._resumed is not None:
            await self._resumed.wait()

    def strike(self, key: ApiKey, fits: Callable[[Fault], bool]) -> dict[FaultKind, Fault]:
        """What happens to this request: of each kind, the first rule that fits. It is counted."""
        self._faults = [fault for fault in self._faults if not fault.is_spent]
        befalling: dict[FaultKind, Fault] = {}
        for fault in self._faults:
            if (fault.api is None or fault.api is key) and fault.kind not in befalling and fits(fault):
                befalling[fault.kind] = fault
                fault.strike()
        return befalling

    def delay_seconds(self, fault: Fault) -> float:
        """How long a delayed or throttled request waits, this time."""
        return (fault.delay_ms + self._rng.uniform(0, fault.jitter_ms)) / 1000
