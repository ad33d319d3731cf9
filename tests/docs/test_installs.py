"""Each module that a snippet of a page imports is brought by one of the page's pip lines."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SMALL_PAGES = [*sorted((DOCS / "quickstart").glob("*.md")), *sorted((DOCS / "recipes").glob("*.md"))]
PAGES = [*SMALL_PAGES, *(DOCS / f"{name}.md" for name in ("testing", "embedding"))]

ALL_PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *SMALL_PAGES]

#: The modules of distributions that have other names than these.
MODULES = {
    "kafka-python": "kafka",
    "confluent-kafka": "confluent_kafka",
    "mockafka-py": "mockafka",
    "faust-streaming": "faust",
    "protobuf": "google",
}
#: What others bring that a page installs.
BROUGHT = {"celery": {"kombu"}, "faust-streaming": {"aiokafka"}}

_TITLE = re.compile(r'^```python title="([^"]+)\.py"', re.MULTILINE)
_PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PIP = re.compile(r"^\$ (?:\S*/)?pip install ([^#\n]*)", re.MULTILINE)
_OWN = re.compile(r"ottla(?:-\*\.whl\))?(?:\[([a-z,]+)\])?$")


def imported(page: str) -> set[str]:
    """The packages, not Python's own nor the page's, that the page's snippets import."""
    names = set()
    for snippet in _PYTHON.findall(page):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - set(_TITLE.findall(page))


def installed(page: str) -> set[str]:
    """What the page's pip lines bring; Ottla itself comes with the quick start, and with Trio."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = {"ottla", "trio"}
    for line in _PIP.findall(page):
        for word in line.replace('"', "").replace("'", "").split():
            own = _OWN.search(word)
            named = [] if own is None else (own[1] or "").split(",")
            wanted = [word] if own is None else [it for name in named for it in extras.get(name, ())]
            found |= {re.split(r"[<>=\[]", name)[0] for name in wanted}
    found |= {it for name in found for it in BROUGHT.get(name, ())}
    return {MODULES.get(name, name) for name in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_how_to_install_what_its_snippets_import(page: Path) -> None:
    text = page.read_text()
    assert imported(text) - installed(text) == set()


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_nothing_is_installed_from_an_index_where_it_is_not(page: Path) -> None:
    """Until there is a release, Ottla comes from a clone or a file."""
    assert not re.findall(r"pip install [^\n]*[ '\"]ottla\b", page.read_text())


def test_what_is_missing_is_found() -> None:
    page = '```console\n$ pip install "/path/to/ottla[test]" aiokafka\n```\n```python\nimport {}\n```\n'
    for known in ("os", "trio", "pytest", "aiokafka", "ottla.testing"):
        assert imported(page.format(known)) <= installed(page.format(known))
    assert imported(page.format("confluent_kafka")) - installed(page) == {"confluent_kafka"}
