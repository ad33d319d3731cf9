"""Faults to inject into a simulated disk: which operation fails, where, how often and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random


class FaultKind(Enum):
    """How an operation goes wrong."""

    ERROR = "error"
    """It raises OSError. A write may have written a part; a failed sync loses what it should have written."""
    CRASH = "crash"
    """The process dies during it: it may have happened, or (a write) in part."""
    FLIP_BIT = "flip bit"
    """A read returns, or a write stores, one wrong bit, without an error."""


@dataclass(slots=True)
class Fault:
    """A rule. It matches operations by name (as in `Disk`; empty: all) and by a part of the path.

    Of the matching operations, the first `after` succeed; then each fails with `probability`, at most `count` times.
    """

    kind: FaultKind
    operations: frozenset[str] = frozenset()
    path_contains: str = ""
    errno: int = 0
    probability: float = 1.0
    after: int = 0
    count: int | None = 1
    struck: int = field(default=0, init=False)
    """How often the fault has happened."""

    def strikes(self, operation: str, path: str, rng: Random) -> bool:
        """Whether it happens to this operation, which is counted."""
        if self.operations and operation not in self.operations:
            return False
        if self.path_contains not in path or (self.count is not None and self.struck >= self.count):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.probability < 1.0 and rng.random() >= self.probability:
            return False
        self.struck += 1
        return True


class FaultInjector:
    """The rules in force; the first that matches an operation decides."""

    __slots__ = ("_faults", "_rng")

    def __init__(self, rng: Random) -> None:
        self._faults: list[Fault] = []
        self._rng = rng

    def add(self, fault: Fault) -> Fault:
        """Add a rule and return it, to look at `struck` later."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Lift every rule."""
        self._faults.clear()

    def strike(self, operation: str, path: str) -> Fault | None:
        """The fault that strikes an operation now, if any."""
        for fault in self._faults:
            if fault.strikes(operation, path, self._rng):
                return fault
        return None
