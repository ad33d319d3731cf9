"""Long pages begin with links to their sections."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GENERATOR = runpy.run_path(str(DOCS / "generate_contents.py"))


@pytest.mark.parametrize("name", GENERATOR["PAGES"])
def test_a_page_names_its_sections(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert text == GENERATOR["page"](text), "run `python docs/generate_contents.py`"
    assert text.count("**On this page:**") == 1


def test_code_has_no_sections() -> None:
    text = "# T\n\nIntro.\n\n## One, two\n\n```sh\n## no section\n```\n\n## Three's\n"
    assert "[One, two](#one-two) · [Three's](#threes)\n\n## One, two" in GENERATOR["page"](text)
    assert GENERATOR["page"](GENERATOR["page"](text)) == GENERATOR["page"](text)
