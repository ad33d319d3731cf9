"""A picture of delays: carriers down, hours across, the later the darker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

CELL_WIDTH: Final = 34
CELL_HEIGHT: Final = 22
LEFT: Final = 60
TOP: Final = 70
WORST_MIN: Final = 40.0
"""The mean delay, in minutes, from which on a cell is darkest."""


class Cell(NamedTuple):
    """The mean delay of a carrier's flights in an hour of the day; None if none of them left."""

    carrier: str
    hour: int
    mean_delay: float | None
    flights: int


def draw(cells: Sequence[Cell]) -> str:
    """The picture as SVG."""
    carriers = sorted({cell.carrier for cell in cells})
    hours = range(min(cell.hour for cell in cells), max(cell.hour for cell in cells) + 1)
    width = LEFT + CELL_WIDTH * len(hours) + 20
    height = TOP + CELL_HEIGHT * len(carriers) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="17">Departure delays from New York, 2013</text>',
        f'<text x="{LEFT}" y="46" fill="#666">mean minutes, by carrier and scheduled hour</text>',
    ]
    parts += [_text(LEFT + (index + 0.5) * CELL_WIDTH, TOP - 6, str(hour)) for index, hour in enumerate(hours)]
    parts += [_text(LEFT - 22, TOP + (index + 0.7) * CELL_HEIGHT, carrier) for index, carrier in enumerate(carriers)]
    for cell in cells:
        parts += _cell(
            cell, LEFT + (cell.hour - hours[0]) * CELL_WIDTH, TOP + carriers.index(cell.carrier) * CELL_HEIGHT
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cell(cell: Cell, x: float, y: float) -> list[str]:
    title = f"<title>{cell.carrier} at {cell.hour}: {cell.flights:,} flights</title>"
    shape = f'x="{x + 1}" y="{y + 1}" width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT - 2}" rx="3"'
    if cell.mean_delay is None:
        return [f'<rect {shape} fill="none" stroke="#bbb">{title}</rect>']
    share = min(1.0, max(0.0, cell.mean_delay / WORST_MIN))
    light = round(96 - 62 * share)
    colour = "white" if share > 0.5 else "#333"
    return [
        f'<rect {shape} fill="hsl(18 75% {light}%)">{title}</rect>',
        _text(x + CELL_WIDTH / 2, y + 0.68 * CELL_HEIGHT, str(round(cell.mean_delay)), colour),
    ]


def _text(x: float, y: float, text: str, colour: str = "#333") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{colour}">{text}</text>'
