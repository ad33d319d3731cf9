"""A release is refused with a sentence, or is whole: what is changed for one that fails is changed back."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-01\n\n- The first.\n"
PYPROJECT = '[project]\nname = "ottla"\nversion = "0.1.0"\n'
URLS = '\n[project.urls]\nRepository = "https://code.example.org/ottla"\n'


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "packaging" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load()


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=The Ottla developers", "-c", "user.email=nobody@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "The Ottla developers")
        monkeypatch.setenv(f"{name}_EMAIL", "nobody@example.org")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT + URLS)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    chart = tmp_path / "packaging" / "helm" / "ottla" / "Chart.yaml"
    chart.parent.mkdir(parents=True)
    chart.write_text('name: ottla\nversion: 0.1.0\nappVersion: "0.1.0"\n')
    (tmp_path / ".gitignore").write_text("/dist/\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions that were built and tried; building itself takes too long for here."""
    versions: list[str] = []

    def build(root: Path, version: str) -> Path:
        versions.append(version)
        assert f'version = "{version}"' in (root / "pyproject.toml").read_text()
        (root / "dist").mkdir(exist_ok=True)
        return root / "dist"

    monkeypatch.setattr(release, "build", build)
    monkeypatch.setattr(release, "try_wheel", lambda _files, _version: None)
    return versions


def test_a_release_is_a_commit_and_a_tag(checkout: Path, built: list[str]) -> None:
    release.release(checkout, "0.2.0", dry_run=False)
    assert built == ["0.2.0"]
    assert git(checkout, "tag", "--list").split() == ["v0.2.0"]
    assert git(checkout, "show", "v0.2.0:pyproject.toml") == PYPROJECT.replace("0.1.0", "0.2.0") + URLS
    chart = git(checkout, "show", "v0.2.0:packaging/helm/ottla/Chart.yaml")
    assert chart == 'name: ottla\nversion: 0.2.0\nappVersion: "0.2.0"\n'
    changelog = git(checkout, "show", "v0.2.0:CHANGELOG.md")
    assert "## [Unreleased]\n\n## [0.2.0] - 20" in changelog
    assert git(checkout, "status", "--porcelain") == ""


def test_a_dry_run_changes_nothing(checkout: Path, built: list[str]) -> None:
    release.release(checkout, "0.2.0", dry_run=True)
    assert built == ["0.2.0"]
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "tag", "--list") == ""


def test_what_fails_changes_nothing(checkout: Path, built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_files: Path, _version: str) -> None:
        raise release.ReleaseError("the broker of the wheel is mute.")

    monkeypatch.setattr(release, "try_wheel", fail)
    with pytest.raises(release.ReleaseError, match="mute"):
        release.release(checkout, "0.2.0", dry_run=False)
    assert built == ["0.2.0"]
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "tag", "--list") == ""


def _with_a_change(checkout: Path) -> None:
    (checkout / "new").write_text("")


def _on_a_branch(checkout: Path) -> None:
    git(checkout, "checkout", "--quiet", "-b", "elsewhere")


def _with_the_tag(checkout: Path) -> None:
    git(checkout, "tag", "v0.2.0")


def _without_urls(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text(PYPROJECT)
    git(checkout, "commit", "--quiet", "--all", "--message", "Say less")


@pytest.mark.parametrize(
    ("prepare", "version", "sentence"),
    [
        (lambda _: None, "next", "next is not a version"),
        (_with_a_change, "0.2.0", "commit them first"),
        (_on_a_branch, "0.2.0", "made on main"),
        (_with_the_tag, "0.2.0", "has been released"),
        (_without_urls, "0.2.0", "where the repository is"),
    ],
)
def test_why_there_is_no_release(
    checkout: Path, built: list[str], prepare: Callable[[Path], None], version: str, sentence: str
) -> None:
    prepare(checkout)
    with pytest.raises(release.ReleaseError, match=sentence):
        release.release(checkout, version, dry_run=False)
    assert built == []


def test_a_changelog_that_says_nothing_is_refused() -> None:
    day = date(2026, 1, 2)
    assert release.dated(CHANGELOG, "0.2.0", day).count("## [0.2.0] - 2026-01-02\n\n### Added") == 1
    with pytest.raises(release.ReleaseError, match="nothing of what is new"):
        release.dated("## [Unreleased]\n\n## [0.1.0]\n\n- The first.\n", "0.2.0", day)
    with pytest.raises(release.ReleaseError, match="no section"):
        release.dated("# Changelog\n", "0.2.0", day)


def test_the_files_of_this_repository_can_be_released() -> None:
    chart = (ROOT / "packaging" / "helm" / "ottla" / "Chart.yaml").read_text()
    assert "\nversion: 9.9.9-rc1\n" in release.with_chart_version(chart, "9.9.9rc1")
    assert 'version = "9.9.9"' in release.with_version((ROOT / "pyproject.toml").read_text(), "9.9.9")
    assert "## [9.9.9]" in release.dated((ROOT / "CHANGELOG.md").read_text(), "9.9.9", date(2026, 1, 2))
