"""The state of an object belongs to its class: no file of storage assigns the fields of an object of another file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

STORAGE = Path(__file__).parents[2] / "storage"


def own_fields(tree: ast.Module) -> set[str]:
    """The fields of the classes that a file defines."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                    found.add(part.attr)
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    found.add(part.target.id)
    return found


def assigned_elsewhere(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, field) of the fields that are assigned through another name than `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own:
                yield node.lineno, node.attr


def test_state_is_changed_by_its_own_class_only() -> None:
    wrong = []
    files = sorted(STORAGE.rglob("*.py"))
    assert len(files) > 60
    for path in files:
        tree = ast.parse(path.read_text())
        fields = own_fields(tree)
        wrong += [
            f"{path.relative_to(STORAGE)}:{line}: {field}"
            for line, field in assigned_elsewhere(tree)
            # The deadline of Trio's cancel scopes is made to be assigned.
            if field not in fields and field != "deadline"
        ]
    assert wrong == []
