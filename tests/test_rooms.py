"""A folder is read at a glance: it has at most 25 files, and what is more is in folders that say what it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tests.rooms import ROOT

MOST: Final = 25
SOURCES: Final = (".py", ".html", ".css", ".js", ".java", ".c", ".go", ".rs")
#: What others fetch or make, and pages, which are found by the site's table of contents.
NOT_OURS: Final = ("node_modules", "target", "build", "dist", "site", "docs")


def crowded(root: Path) -> list[str]:
    """The folders with more sources than are seen at a glance."""
    found = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in NOT_OURS and not name.startswith((".", "__"))]
        count = sum(name.endswith(SOURCES) for name in files)
        if count > MOST:
            found.append(f"{Path(folder).relative_to(root)}: {count}")
    return found


def test_a_crowded_folder_is_found(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    for number in range(MOST):
        (room / f"{number}.py").touch()
    (room / "notes.txt").touch()
    assert crowded(tmp_path) == []
    (room / "page.html").touch()
    assert crowded(tmp_path) == ["room: 26"]


def test_no_folder_is_crowded() -> None:
    assert crowded(ROOT) == []
