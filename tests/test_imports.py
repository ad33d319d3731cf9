"""No module imports one that imports it, by whatever detour: not even for types, inside a function, or by its name."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final

import pytest

#: A script that is run as a program starts what is made of it.
SCRIPTS: Final = {("ottla.pipeline.tables.sync", "ottla.pipeline.tables.runner")}
ROOT: Final = Path(__file__).parents[1]


def circles(imports: Mapping[str, Set[str]]) -> list[str]:
    """The modules from which a way along the imports leads back."""
    left = {module: set(imported) for module, imported in imports.items()}
    while ends := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported - ends for module, imported in left.items() if module not in ends}
    importers = {module: {other for other, imported in left.items() if module in imported} for module in left}
    while starts := {module for module, others in importers.items() if not others & importers.keys()}:
        importers = {module: others for module, others in importers.items() if module not in starts}
    return sorted(importers)


def named(module: str, modules: Set[str]) -> set[str]:
    """The modules that a module names in a string by itself, to load them later."""
    path = ROOT.joinpath(*module.split(".")[1:])
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.exists():
        return set()  # a folder without a module of its own
    strings = (node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant))
    return {text for text in strings if isinstance(text, str) and text in modules and text.startswith("ottla.")}


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_there_are_no_circles() -> None:
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("ottla", cache_dir=None, exclude_type_checking_imports=False)
    modules = set(graph.modules)
    assert len(modules) > 500
    # The command line, and tests, start programs, which are named as well.
    libraries = [module for module in modules if not module.startswith(("ottla.cli", "ottla.testing"))]
    by_name = {(module, other) for module in libraries for other in named(module, modules)}
    assert len(by_name) > 10
    imports = {module: set(graph.find_modules_directly_imported_by(module) & modules) for module in modules}
    for module, other in by_name:
        imports[module].add(other)
    for script, program in SCRIPTS:
        imports[script].discard(program)
    assert circles(imports) == []


def test_the_page_says_so() -> None:
    page = " ".join((ROOT / "docs/architecture.md").read_text().split())
    assert "there are no import cycles, not even for types or by the name of a module" in page
