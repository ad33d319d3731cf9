"""The documentation's snippets run: the blocks of a page in order, against a broker of their own.

A block in a language of `RUNNERS` is run, with the broker's address in the place of 127.0.0.1:9092. A `text` block that
follows it is what it prints. A block with a title is a file of that name, beside the page's other ones; tests are run.
Anything else (`console`, with what a person types and sees) is for reading.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.testing import Broker

ROOT = Path(__file__).parents[2]
DEFAULT_ADDRESS = "127.0.0.1:9092"
PAGES = sorted([ROOT / "README.md", ROOT / "docs/embedding.md", *(ROOT / "docs/quickstart").glob("*.md")])

#: Languages whose tools take long or fetch packages: run by `make test-snippets`, and so is Spark.
SLOW = {"java", "js", "go"}

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?[^\n]*\n(.*?)^```', re.MULTILINE | re.DOTALL)


class Snippet(NamedTuple):
    language: str
    code: str
    prints: str | None
    title: str = ""

    @property
    def is_slow(self) -> bool:
        return self.language in SLOW or "pyspark" in self.code


def snippets(page: Path) -> Iterator[Snippet]:
    """The blocks of a page that are run, in order."""
    blocks = _BLOCK.findall(page.read_text())
    for place, (language, title, code) in enumerate(blocks):
        if language in RUNNERS:
            following = blocks[place + 1] if place + 1 < len(blocks) else ("", "", "")
            yield Snippet(language, code, following[2] if following[0] == "text" else None, title)


def pages() -> Iterator[object]:
    """Each page's quick snippets, where it has any of its own, and all of those with slow ones."""
    for page in PAGES:
        found = list(snippets(page))
        if not found:
            continue
        is_slow = any(snippet.is_slow for snippet in found)
        if not is_slow or page.name == "README.md":
            quick = [snippet for snippet in found if not snippet.is_slow]
            yield pytest.param(quick, id=page.stem)
        if is_slow:
            marks = [pytest.mark.timeout(900), pytest.mark.snippets]
            yield pytest.param(found, id=f"{page.stem}, all", marks=marks)


def need(program: str) -> str:
    """The program, or this test is skipped."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def python(code: str, folder: Path) -> list[str]:
    if "def test_" in code:
        (folder / "test_snippet.py").write_text(code)
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_snippet.py"]
    (folder / "snippet.py").write_text(code)
    return [sys.executable, "snippet.py"]


def shell(code: str, folder: Path) -> list[str]:
    if "kcat" in code:
        need("kcat")
    return ["bash", "-euo", "pipefail", "-c", code]


def java(code: str, folder: Path) -> list[str]:
    jars = ROOT / ".jars/kafka-4.4"
    if not (jars / ".complete").exists():
        pytest.skip("the jars that `make jars` fetches are missing")
    (folder / "Quickstart.java").write_text(code)
    return [need("java"), "-cp", f"{jars}/*", "Quickstart.java"]


def javascript(code: str, folder: Path) -> list[str]:
    prepare([need("npm"), "install", "--no-audit", "--no-fund", "--silent", "kafkajs"], folder)
    (folder / "snippet.js").write_text(code)
    return [need("node"), "snippet.js"]


def go(code: str, folder: Path) -> list[str]:
    (folder / "main.go").write_text(code)
    prepare([need("go"), "mod", "init", "quickstart"], folder)
    prepare([need("go"), "mod", "tidy"], folder)
    return [need("go"), "run", "."]


RUNNERS: dict[str, Callable[[str, Path], list[str]]] = {
    "python": python,
    "sh": shell,
    "java": java,
    "js": javascript,
    "go": go,
}


def prepare(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def run(snippet: Snippet, address: str, folder: Path) -> str:
    """Run a snippet and return what it printed."""
    code = snippet.code.replace(DEFAULT_ADDRESS, address)
    command = RUNNERS[snippet.language](code, folder)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OTTLA_BOOTSTRAP": address}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{snippet.code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", list(pages()))
def test_snippets_run(page: list[Snippet], tmp_path: Path) -> None:
    with Broker() as broker:
        for number, snippet in enumerate(page):
            folder = tmp_path / ("files" if snippet.title else str(number))
            folder.mkdir(exist_ok=True)
            if snippet.title:
                (folder / snippet.title).write_text(snippet.code)
                if not snippet.title.startswith("test_"):
                    continue
            printed = run(snippet, broker.bootstrap, folder)
            if snippet.prints is not None:
                assert printed == snippet.prints


def test_a_snippet_that_fails_or_prints_something_else_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\necho a\n```\n\n```text\nb\n```\n\n```console\n$ false\n```\n\n```python\nraise SystemExit(3)\n```\n"
    )
    first, second = snippets(page)
    assert (first.prints, second.prints) == ("b\n", None)
    assert run(first, "127.0.0.1:1", tmp_path) == "a\n"
    with pytest.raises(AssertionError, match="SystemExit"):
        run(second, "127.0.0.1:1", tmp_path)
