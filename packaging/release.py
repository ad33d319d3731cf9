"""Make a release: `make release VERSION=0.2.0`.

One command from a clean checkout of main: it dates the changelog, sets the version, builds the source archive and from
it the wheel, checks both, installs the wheel into an empty environment and sends a record through the broker that is in
it, lists what was installed (a CycloneDX SBOM), commits and tags. Whatever fails, the checkout is as it was before.
Pushing the tag publishes: `.github/workflows/release.yml` builds the same files again and uploads them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_UNRELEASED = "## [Unreleased]\n"
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class ReleaseError(Exception):
    """There can be no release now; its text is the sentence that is printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 0 if there is a release, or with --dry-run if there could be one."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("version", help="the version to release, like 0.2.0")
    parser.add_argument("--dry-run", action="store_true", help="build and check, but commit and tag nothing")
    parser.add_argument("--files-only", action="store_true", help="build and check a version that has its tag")
    given = parser.parse_args(arguments)
    try:
        if given.files_only:
            try_wheel(build(ROOT, given.version), given.version)
        else:
            release(ROOT, given.version, dry_run=given.dry_run)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"release: {' '.join(map(str, error.cmd))} failed:\n{error.stdout}{error.stderr}", file=sys.stderr)
        return 1
    return 0


def release(root: Path, version: str, *, dry_run: bool) -> None:
    """Release the checkout at `root`; ReleaseError or CalledProcessError if that cannot be, and nothing has changed."""
    check_checkout(root, version)
    pyproject, changelog = root / "pyproject.toml", root / "CHANGELOG.md"
    chart = root / "packaging" / "helm" / "ottla" / "Chart.yaml"
    before = {path: path.read_text() for path in (pyproject, changelog, chart)}
    try:
        pyproject.write_text(with_version(before[pyproject], version))
        changelog.write_text(dated(before[changelog], version, datetime.now(UTC).date()))
        chart.write_text(with_chart_version(before[chart], version))
        files = build(root, version)
        try_wheel(files, version)
        if not dry_run:
            _run(["git", "commit", "--quiet", "--all", "--message", f"Release {version}"], root)
            _run(["git", "tag", "--annotate", f"v{version}", "--message", f"Ottla {version}"], root)
    except BaseException:
        dry_run = True
        raise
    finally:
        if dry_run:
            for path, text in before.items():
                path.write_text(text)
    for path in sorted(files.iterdir()):
        print(path)
    print("nothing was committed" if dry_run else f"publish it:  git push origin main v{version}")


# What is looked at before anything is changed.


def check_checkout(root: Path, version: str) -> None:
    """ReleaseError unless this checkout may become that version."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version} is not a version; write it like 0.2.0 or 0.2.0rc1.")
    if _run(["git", "status", "--porcelain"], root):
        raise ReleaseError("the checkout has changes; commit them first.")
    if _run(["git", "symbolic-ref", "--short", "HEAD"], root).strip() != "main":
        raise ReleaseError("releases are made on main.")
    if _run(["git", "tag", "--list", f"v{version}"], root):
        raise ReleaseError(f"version {version} has been released.")
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"].get("urls", {})
    if "Repository" not in urls:
        raise ReleaseError("pyproject.toml does not say where the repository is: set Repository in [project.urls].")


def with_version(pyproject: str, version: str) -> str:
    """pyproject.toml's text with another version."""
    text, count = re.subn(r'(?m)^version = "[^"]+"$', f'version = "{version}"', pyproject)
    if count != 1:
        raise ReleaseError(f"pyproject.toml names a version {count} times, not once.")
    return text


def with_chart_version(chart: str, version: str) -> str:
    """Chart.yaml's text with another version: Helm wants 0.2.0-rc1 where Python has 0.2.0rc1."""
    semantic = re.sub(r"(a|b|rc)(\d+)$", r"-\1\2", version)
    text, count = re.subn(r"(?m)^version: .+$", f"version: {semantic}", chart)
    text, app_count = re.subn(r"(?m)^appVersion: .+$", f'appVersion: "{version}"', text)
    if (count, app_count) != (1, 1):
        raise ReleaseError("Chart.yaml must name version and appVersion once each.")
    return text


def dated(changelog: str, version: str, day: date) -> str:
    """The changelog's text with what is unreleased under the version; ReleaseError if that is nothing."""
    before, heading, after = changelog.partition(_UNRELEASED)
    if not heading:
        raise ReleaseError("CHANGELOG.md has no section [Unreleased].")
    if not re.split(r"(?m)^## ", after)[0].strip():
        raise ReleaseError("CHANGELOG.md says nothing of what is new.")
    return f"{before}{_UNRELEASED}\n## [{version}] - {day.isoformat()}\n{after}"


# What is built, and how it is tried.


def build(root: Path, version: str) -> Path:
    """The source archive and the wheel that is made of it, in dist/, which holds nothing else afterwards."""
    out = root / "dist"
    for path in out.glob("*"):
        path.unlink()
    _run([sys.executable, "-m", "build", "--outdir", str(out), str(root)], root)
    found = sorted(path.name for path in out.iterdir())
    if found != [f"ottla-{version}-py3-none-any.whl", f"ottla-{version}.tar.gz"]:
        raise ReleaseError(f"something else was built: {', '.join(found)}")
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, out.iterdir())], root)
    return out


def try_wheel(files: Path, version: str) -> None:
    """Install the wheel where nothing else is, send a record through its broker, and write the list of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / "bin"
        wheel = next(files.glob("*.whl"))
        _run([programs / "python", "-m", "pip", "install", "--quiet", wheel], folder)
        said = _run([programs / "ottla", "--version"], folder).split()
        if said[-1] != version:
            raise ReleaseError(f"the installed program says that it is {' '.join(said)}, not {version}.")
        _send_a_record(programs, folder)
        sbom = files / f"ottla-{version}.cdx.json"
        cyclonedx = [sys.executable, "-m", "cyclonedx_py", "environment"]
        _run([*cyclonedx, "--output-file", sbom, programs / "python"], folder)


def _send_a_record(programs: Path, folder: str) -> None:
    serve: list[str | Path] = [programs / "ottla", "serve", "--memory", "--port", "0"]
    with subprocess.Popen(serve, cwd=folder, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = json.loads(broker.stdout.readline())
            at = ["--bootstrap", f"{ready['host']}:{ready['port']}"]
            _run([programs / "ottla", "produce", *at, "releases"], folder, text="one\n")
            consumed = _run([programs / "ottla", "consume", *at, "releases", "--count", "1"], folder)
        finally:
            broker.terminate()
    if consumed != "one\n":
        raise ReleaseError(f"the broker of the wheel was sent one record and gave {consumed!r}.")
    if broker.returncode != 0:
        raise ReleaseError(f"the broker of the wheel ended with {broker.returncode}.")


def _run(command: Sequence[str | Path], folder: Path | str, *, text: str = "") -> str:
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True, check=True, text=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
