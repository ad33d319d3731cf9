"""Faults that are planted in the product, to see that a simulation finds them.

Each takes out a line of the product, or spoils one, for as long as it is planted; the switch is in the simulation and
never in the product. One that is not found is a hole in the simulation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ottla.simulation.harness.outcome import Simulate

__all__ = ["PlantedFault", "planted", "seeds_until_found", "tell_seeds_until_found"]


class PlantedFault(NamedTuple):
    """What is found when the `changes` are made matches `finding`.

    A change is an owner, its attribute, and what takes the attribute's place. One that takes many seeds `is_slow`.
    """

    name: str
    changes: tuple[tuple[Any, str, Any], ...]
    finding: str = ""
    is_slow: bool = False


@contextmanager
def planted(fault: PlantedFault) -> Iterator[None]:
    """Plant a fault for as long as this is open. KeyError if the product has no such thing any more."""
    sound = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in fault.changes]
    for owner, attribute, spoilt in fault.changes:
        setattr(owner, attribute, spoilt)
    try:
        yield
    finally:
        for owner, attribute, before in sound:
            setattr(owner, attribute, before)


def seeds_until_found(simulate: Simulate, fault: PlantedFault, *, first: int = 0, most: int) -> tuple[int, str] | None:
    """How many seeds it takes, beginning with `first`, and what is found then; None if `most` are not enough.

    A fault that cannot be planted as it is, since what it calls has changed, raises the error that it ends in.
    """
    with planted(fault):
        for count, seed in enumerate([*range(first, most), *range(first)], 1):
            outcome = simulate(seed)
            if outcome.cause is not None and _is_mistake(outcome.cause):
                raise outcome.cause
            if outcome.finding and re.search(fault.finding, outcome.finding):
                return count, outcome.finding
    return None


def _is_mistake(cause: BaseException) -> bool:
    if isinstance(cause, BaseExceptionGroup):
        return any(_is_mistake(each) for each in cause.exceptions)
    return isinstance(cause, TypeError | AttributeError | NameError)


def tell_seeds_until_found(simulate: Simulate, faults: Sequence[PlantedFault], *, most: int) -> int:
    """Print a line for each fault: after how many seeds it is found, and what is found. 1 if one is missed, else 0."""
    missed = 0
    for fault in faults:
        began = time.process_time()
        found = seeds_until_found(simulate, fault, most=most)
        missed += found is None
        said = "not found" if found is None else f"{found[0]:4} seeds"
        print(f"{said}  {time.process_time() - began:5.1f} s of CPU  {fault.name}", flush=True)
        if found is not None:
            print(f"            {found[1].splitlines()[0][:200]}")
    return 1 if missed else 0
