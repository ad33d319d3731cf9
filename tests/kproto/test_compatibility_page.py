"""The tables of docs/compatibility.md are those of the declarations."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_tables_are_current() -> None:
    generator = runpy.run_path(str(DOCS / "generate_compatibility.py"))
    current = (DOCS / "compatibility.md").read_text()
    assert current == generator["page"](), "run `python docs/generate_compatibility.py`"
    assert "| 1 | Fetch | 4-18 | 12+ | 4-18 |" in current
