"""What a failed seed raises."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["SimulationError"]

_SHOWN = 80


class SimulationError(AssertionError):
    """The cluster did what it must not do. `finding` says what; the message names the seed and what happened before."""

    def __init__(self, seed: int, finding: str, trace: Sequence[str]) -> None:
        shown = "\n".join(trace[-_SHOWN:])
        super().__init__(f"seed {seed}: {finding}\n{shown}")
        self.seed = seed
        self.finding = finding
