"""Charts as SVG: only their geometry; the templates draw them, and the style sheet colours them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 240
HEIGHT = 48


class Sparkline(NamedTuple):
    """A curve over time: a path for the line and one for the area below, in a box of `WIDTH` by `HEIGHT`."""

    line: str
    area: str
    highest: float
    last: float


def sparkline(values: Sequence[float], length: int) -> Sparkline | None:
    """The curve of the latest values, with the newest at the right edge of a box that has room for `length` of them.

    None for fewer than two values: there is no line yet.
    """
    if len(values) < 2:
        return None
    highest = max(values)
    shares = [value / highest if highest > 0 else 0.0 for value in values]
    step = WIDTH / (length - 1)
    first_x = WIDTH - step * (len(values) - 1)
    points = [
        f"{first_x + step * place:.1f},{HEIGHT - 2 - share * (HEIGHT - 4):.1f}" for place, share in enumerate(shares)
    ]
    line = "M" + "L".join(points)
    return Sparkline(line, f"{line}V{HEIGHT}H{first_x:.1f}Z", highest, values[-1])
