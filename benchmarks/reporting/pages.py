"""Putting what was generated into pages that people write, between two marks."""

from __future__ import annotations

from pathlib import Path

__all__ = ["between_marks", "put_between_marks"]


def put_between_marks(page: Path, name: str, content: str) -> None:
    """Replace what is between the marks of this name. ValueError if the page has none."""
    before, _, after = _split(page, name)
    start, end = _marks(name)
    page.write_text(f"{before}{start}\n{content}\n{end}{after}")


def between_marks(page: Path, name: str) -> str:
    """What is there. ValueError if the page has no such marks."""
    return _split(page, name)[1].strip()


def _split(page: Path, name: str) -> tuple[str, str, str]:
    start, end = _marks(name)
    before, has_start, rest = page.read_text().partition(start)
    middle, has_end, after = rest.partition(end)
    if not (has_start and has_end):
        raise ValueError(f"{page} has no {start} and {end}")
    return before, middle, after


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: start -->", f"<!-- {name}: end -->"
