"""Writes the line "On this page" of long pages: `python docs/generate_contents.py`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS = Path(__file__).parent
PAGES: Final = ("operations", "spark", "testing")

_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(r"^\*\*On this page:\*\* .*\n\n", re.MULTILINE)


def page(text: str) -> str:
    """The page with its line, before the first section."""
    text = _LINE.sub("", text)
    titles = _SECTION.findall(_CODE.sub("", text))
    line = " · ".join(f"[{title}](#{_anchor(title)})" for title in titles)
    first = text.index(f"\n## {titles[0]}\n") + 1
    return f"{text[:first]}**On this page:** {line}\n\n{text[first:]}"


def _anchor(title: str) -> str:
    """As GitHub and Python-Markdown make it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


if __name__ == "__main__":
    for name in PAGES:
        path = DOCS / f"{name}.md"
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
