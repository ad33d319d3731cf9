"""Every shield from cancellation is told of in docs/architecture.md, with what ends the wait behind it."""

from __future__ import annotations

from pathlib import Path

from tests.rooms import BROKER, ROOT, sources

PAGE = (ROOT / "docs" / "architecture.md").read_text()


def files_with_shields() -> list[Path]:
    return [path.relative_to(ROOT) for path in sources(*BROKER, "storage") if "shield=True" in path.read_text()]


def is_told(path: Path) -> bool:
    """By its whole path, or by its folder and its name in one line."""
    return any(
        f"`{path}`" in line or (f"`{path.parent}/`" in line and f"`{path.name}`" in line) for line in PAGE.splitlines()
    )


def test_the_page_tells_what_ends_the_wait_behind_every_shield() -> None:
    found = files_with_shields()
    assert found
    assert [str(path) for path in found if not is_told(path)] == []
