"""The state of an object belongs to its class: no file of storage assigns the fields of an object of another file."""

from __future__ import annotations

from pathlib import Path

from tests.walls import over_the_wall

STORAGE = Path(__file__).parents[2] / "storage"


def test_state_is_changed_by_its_own_class_only() -> None:
    files = sorted(STORAGE.rglob("*.py"))
    assert len(files) > 60
    wrong = [f"{path.relative_to(STORAGE)}:{each}" for path in files for each in over_the_wall(path)]
    assert wrong == []
