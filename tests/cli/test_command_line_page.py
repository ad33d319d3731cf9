"""docs/command-line.md says what the commands understand."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_the_command_line_is_current() -> None:
    generator = runpy.run_path(str(DOCS / "generate_command_line.py"))
    current = (DOCS / "command-line.md").read_text(encoding="utf-8")
    assert current == generator["page"](), "run `python docs/generate_command_line.py`"
