"""No module imports one that imports it, by whatever detour: not even for types, and not inside a function."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final

import pytest

#: A script that is run as a program starts what is made of it.
SCRIPTS: Final = {("ottla.pipeline.tables.sync", "ottla.pipeline.tables.runner")}
#: What only tests run may have circles.
WITHOUT: Final = "ottla.simulation"


def circles(imports: Mapping[str, Set[str]]) -> list[str]:
    """The modules from which a way along the imports leads back."""
    left = {module: set(imported) for module, imported in imports.items()}
    while ends := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported - ends for module, imported in left.items() if module not in ends}
    importers = {module: {other for other, imported in left.items() if module in imported} for module in left}
    while starts := {module for module, others in importers.items() if not others & importers.keys()}:
        importers = {module: others for module, others in importers.items() if module not in starts}
    return sorted(importers)


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_there_are_no_circles() -> None:
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("ottla", cache_dir=None, exclude_type_checking_imports=False)
    modules = {module for module in graph.modules if not f"{module}.".startswith(f"{WITHOUT}.")}
    assert len(modules) > 500
    imports = {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}
    for script, program in SCRIPTS:
        imports[script] = imports[script] - {program}
    assert circles(imports) == []


def test_the_page_says_so() -> None:
    page = " ".join((Path(__file__).parents[1] / "docs/architecture.md").read_text().split())
    assert "outside `simulation` there are no import cycles, not even for types" in page
