"""The recipes of docs/recipes run: the files that a page shows, in a folder of their own, as a reader would run them.

Pages whose clients the other tests have as well run always. The others run with `-m recipes`, in the environment that
`make recipes` makes, and with npm, Go and Maven.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs/recipes").glob("*.md") if path.name != "index.md")
QUICK = {"aiokafka", "confluent-kafka", "kafka-python", "schemas"}
#: Where the libraries are that only recipes use.
LIBRARIES = ROOT / ".cache/recipes/bin/python"
_SECONDS = 900

_FILE = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
_TEST = {
    ".py": re.compile(r"^(?:async )?def test_", re.MULTILINE),
    ".js": re.compile(r"^test\(", re.MULTILINE),
    ".go": re.compile(r"^func Test(?!Main)", re.MULTILINE),
    ".java": re.compile(r"@Test\b"),
}
_PASSED = {
    ".py": re.compile(r"^(\d+) passed", re.MULTILINE),
    ".js": re.compile(r"^# pass (\d+)", re.MULTILINE),
    ".go": re.compile(r"^--- PASS: ", re.MULTILINE),
    ".java": re.compile(r"^.*Tests run: (\d+), Failures: 0, Errors: 0, Skipped: 0$", re.MULTILINE),
}


def need(program: str) -> str:
    """The program, or this test is skipped."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def python(page: str) -> str:
    if page in QUICK or page == "spark":
        return sys.executable
    if not LIBRARIES.exists():
        pytest.skip("the libraries that `make recipes` fetches are missing")
    return str(LIBRARIES)


#: What runs the tests of a page, after what prepares its folder.
COMMANDS: dict[str, Callable[[str], list[list[str]]]] = {
    ".py": lambda page: [[python(page), "-m", "pytest", "-q", "-p", "ottla.testing.pytest_plugin"]],
    ".js": lambda _: [
        [need("npm"), "install", "--no-audit", "--no-fund", "--silent", "kafkajs"],
        [need("node"), "--test", "--test-reporter=tap"],
    ],
    ".go": lambda _: [
        [need("go"), "mod", "init", "orders"],
        [need("go"), "mod", "tidy"],
        [need("go"), "test", "-v", "./..."],
    ],
    ".java": lambda _: [[need("mvn"), "--batch-mode", "test"]],
}


def files(page: Path) -> dict[str, str]:
    return {title: code for _, title, code in _FILE.findall(page.read_text())}


def pages() -> list[object]:
    marks = [pytest.mark.recipes, pytest.mark.timeout(3 * _SECONDS)]
    return [pytest.param(page, id=page.stem, marks=() if page.stem in QUICK else marks) for page in PAGES]


def run(page: Path, folder: Path) -> None:
    """Run a page's tests. AssertionError if not every one of them is there and passes."""
    found = files(page)
    for name, code in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    kind = next(kind for kind in COMMANDS if any(name.endswith(kind) for name in found))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTTLA_", "PYTEST_"))}
    # Of the plugins that happen to be installed, the recipes need Ottla's, and others only take time.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    text = ""
    for command in COMMANDS[kind](page.stem):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
        text = done.stdout
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    wanted = sum(len(_TEST[kind].findall(code)) for name, code in found.items() if name.endswith(kind))
    passed = _PASSED[kind].findall(text)
    assert wanted > 0
    assert (int(passed[-1]) if passed and passed[-1].isdigit() else len(passed)) == wanted, text


@pytest.mark.parametrize("page", pages())
def test_its_tests_pass(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path)


def test_a_page_whose_tests_fail_is_found(tmp_path: Path) -> None:
    page = tmp_path / "aiokafka.md"
    page.write_text('```python title="test_it.py"\ndef test_one():\n    pass\n\n\ndef test_two():\n    assert 0\n```\n')
    with pytest.raises(AssertionError, match="1 failed, 1 passed"):
        run(page, tmp_path)


def test_every_page_says_what_the_mock_hid_and_is_listed() -> None:
    index = (ROOT / "docs/recipes/index.md").read_text()
    assert len(PAGES) >= 12
    for page in PAGES:
        assert f"({page.name})" in index
        assert page.read_text().count("**What the mock hid.**") >= 1, page.name
