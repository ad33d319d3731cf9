"""The state of an object belongs to its class: which files assign fields of objects of another file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def own_fields(tree: ast.Module) -> set[str]:
    """The fields of the classes that a file defines."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found |= {
                part.target.id
                for part in node.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            }
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                    found.add(part.attr)
    return found


def assigned_elsewhere(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, field) of the fields that are assigned through another name than `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own:
                yield node.lineno, node.attr


def over_the_wall(path: Path) -> list[str]:
    """`line: field` of each field that a file assigns and that no class in it has."""
    tree = ast.parse(path.read_text())
    fields = own_fields(tree)
    # The deadline of Trio's cancel scopes is made to be assigned.
    return [
        f"{line}: {field}" for line, field in assigned_elsewhere(tree) if field not in fields and field != "deadline"
    ]
