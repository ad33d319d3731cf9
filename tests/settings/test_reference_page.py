"""docs/configuration.md says what the table says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_page_is_current() -> None:
    generator = runpy.run_path(str(DOCS / "generate_configuration.py"))
    current = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert current == generator["page"](), "run `python docs/generate_configuration.py`"
