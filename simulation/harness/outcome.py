"""What comes of a seed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Outcome", "Simulate", "SimulationError"]

_SHOWN = 80


class SimulationError(AssertionError):
    """The product did what it must not do. `finding` says what; the message names the seed and what happened before."""

    def __init__(self, seed: int, finding: str, trace: Sequence[str]) -> None:
        shown = "\n".join(trace[-_SHOWN:])
        super().__init__(f"seed {seed}: {finding}\n{shown}")
        self.seed = seed
        self.finding = finding


class Outcome(NamedTuple):
    """What came of a seed. `finding` is empty if all is well."""

    seed: int
    finding: str
    #: What happened, line by line, and a hash of it.
    trace: list[str]
    digest: str
    #: What the seed can do without, by number: faults or operations.
    parts: dict[int, str]
    #: How much there was of what: for the last line of a run of many seeds.
    counts: Mapping[str, float]
    cause: BaseException | None = None

    def check(self) -> None:
        """SimulationError if the product did what it must not do."""
        if self.finding:
            raise SimulationError(self.seed, self.finding, self.trace) from self.cause


class Simulate(Protocol):
    """Runs one seed. `only` has the numbers of the parts that there are; without it there are all."""

    def __call__(self, seed: int, *, only: Collection[int] | None = None) -> Outcome: ...
