"""README.md has the figures of docs/performance.md."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_its_figures_are_those_of_the_page() -> None:
    generator = runpy.run_path(str(ROOT / "docs/generate_readme.py"))
    page, text = (ROOT / "docs/performance.md").read_text(), (ROOT / "README.md").read_text()
    assert generator["table"](page).count("\n") == len(generator["ROWS"]), "the page has no row of that name"
    assert generator["readme"](text, page) == text, "run docs/generate_readme.py"
