"""Every link of the documentation leads somewhere: pages, files, and headings within them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


def links(page: Path) -> Iterator[str]:
    for found in _LINK.finditer(_FENCE.sub("", page.read_text())):
        yield found[1]


@cache
def anchors(page: Path) -> frozenset[str]:
    """What may follow a page's `#`, as GitHub and the site make it of headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        found |= {slug, re.sub(r"-+", "-", slug)}
    return frozenset(found | set(_ANCHOR.findall(page.read_text())))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        outside = ROOT / "docs" in page.parents and ROOT / "docs" not in target.parents and target != ROOT / "docs"
        missing_anchor = anchor and target.suffix == ".md" and target.exists() and anchor not in anchors(target)
        if not target.exists() or missing_anchor or (outside and path):
            broken.append(link)
    assert not broken


def test_every_page_is_in_the_navigation() -> None:
    site = (ROOT / "zensical.toml").read_text()
    left_out = [
        str(page.relative_to(ROOT / "docs"))
        for page in (ROOT / "docs").rglob("*.md")
        if f'"{page.relative_to(ROOT / "docs")}"' not in site and page.parent.name != "decisions"
    ]
    assert not left_out


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/decisions/index.md").read_text()
    assert not [page.name for page in (ROOT / "docs/decisions").glob("0*.md") if f"({page.name})" not in index]


def test_every_picture_is_shown_and_described() -> None:
    shown = "".join(page.read_text() for page in PAGES) + (ROOT / "zensical.toml").read_text()
    assert not [picture.name for picture in (ROOT / "docs/images").iterdir() if picture.name not in shown]
    assert "![](" not in shown


def test_every_test_that_the_protocol_notes_name_is_there() -> None:
    named = re.findall(r"`((?:compat_)?tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs/protocol-notes.md").read_text())
    assert len(named) >= 46
    assert not [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]


def test_every_file_that_kafkas_names_lead_to_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    table = text[text.index("## Kafka's names") : text.index("## What ends the process")]
    named = re.findall(r"`((?:server|coordinator|security|replica|metadata|settings|storage|runtime)/[\w/.]+)`", table)
    assert len(named) >= 45
    assert not [path for path in named if not (ROOT / path).exists()]
