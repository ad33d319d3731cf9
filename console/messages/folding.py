"""Laid-out JSON in parts that a reader can fold, so that a phone shows what a value has before all of its lines."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.runtime.time_slice import TimeSlice

MAX_DEPTH: Final = 16
"""Deeper parts are lines of the one around them."""

_ALWAYS_OPEN_LINES: Final = 40
_SHORT_LINES: Final = 10


class Piece(NamedTuple):
    """A piece of a value: lines, the line that opens a part, or the line that closes it.

    All texts together are the value's text.
    """

    kind: str
    """`lines`, `open` or `close`."""
    text: str
    line_count: int = 0
    """Of a part that opens: the lines within."""
    is_open: bool = True


async def folded(text: str) -> list[Piece]:
    """The pieces of JSON with one item on each line, which may be cut anywhere."""
    slices = TimeSlice()
    *whole, last = text.split("\n")  # and at nothing else: a text in the value may have other ends of lines
    lines = [line + "\n" for line in whole] + ([last] if last else [])
    pieces: list[Piece] = []
    opened: list[tuple[int, int]] = []
    depth = 0
    plain: list[str] = []

    def add_lines() -> None:
        if plain:
            pieces.append(Piece("lines", "".join(plain)))
            plain.clear()

    def close(end: int, text: str) -> None:
        place, start = opened.pop()
        count = end - start
        is_open = len(lines) <= _ALWAYS_OPEN_LINES or not opened or count <= _SHORT_LINES
        pieces[place] = pieces[place]._replace(line_count=count, is_open=is_open)
        pieces.append(Piece("close", text))

    for number, line in enumerate(lines):
        if line.strip()[-1:] in ("{", "["):
            depth += 1
            if depth <= MAX_DEPTH:
                add_lines()
                opened.append((len(pieces), number + 1))
                pieces.append(Piece("open", line))
                continue
        elif line.lstrip()[:1] in ("}", "]"):
            depth -= 1
            if depth < MAX_DEPTH and opened:
                add_lines()
                close(number, line)
                continue
        plain.append(line)
        if slices.is_over:
            await slices.maybe_yield()
    add_lines()
    while opened:
        close(len(lines), "")
    return pieces
