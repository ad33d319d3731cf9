"""The wheel and the sdist hold what git tracks, and nothing else, and the wheel installs only `ottla.*`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "kproto",
    "storage",
    "client",
    "schemas",
    "runtime",
    "metastore",
    "tiers",
    "settings",
    "metadata",
    "security",
    "replica",
    "coordinator",
    "metrics",
    "server",
    "proxy",
    "registry",
    "rest",
    "console",
    "cli",
    "pipeline",
    "testing",
    "simulation",
)


def tracked_files() -> list[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing to compare the distributions with")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    return tracked_files()


@pytest.fixture(scope="module")
def distributions(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is (sdist, then the wheel from it) out of a tree littered as a developer's is."""
    tree = tmp_path_factory.mktemp("tree")
    for name in tracked:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    for litter in (
        "kproto/__pycache__/types.cpython-311.pyc",
        ".venv/pyvenv.cfg",
        "data/cluster.sqlite",
        ".jars/a.jar",
    ):
        (tree / litter).parent.mkdir(parents=True, exist_ok=True)
        (tree / litter).write_bytes(b"litter")

    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    subprocess.run([*build, "--target", "sdist"], cwd=tree, check=True, capture_output=True)
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        archive.extractall(unpacked, filter="data")
    subprocess.run([*build, "--target", "wheel"], cwd=next(unpacked.iterdir()), check=True, capture_output=True)
    return out


def test_sdist_holds_what_git_tracks(distributions: Path, tracked: list[str]) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        held = {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}

    links = {name for name in tracked if (ROOT / name).is_symlink()}
    assert links == {f"dev/ottla/{package}" for package in PACKAGES}
    assert held - {"PKG-INFO"} == set(tracked) - links


def test_wheel_holds_the_tracked_packages_under_ottla(distributions: Path, tracked: list[str]) -> None:
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert held == {f"ottla/{name}" for name in tracked if name.startswith(tuple(f"{p}/" for p in PACKAGES))}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_marked_as_typed(package: str, tracked: list[str]) -> None:
    assert f"{package}/py.typed" in tracked


def test_wheel_installs_one_top_level_name(distributions: Path) -> None:
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as archive:
        top_level = {PurePosixPath(name).parts[0] for name in archive.namelist()}

    assert {name for name in top_level if not name.endswith(".dist-info")} == {"ottla"}


def test_installed_wheel_imports_without_the_repository(distributions: Path, tmp_path: Path) -> None:
    wheel = next(distributions.glob("*.whl"))
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--target", str(site), str(wheel)], check=True, capture_output=True)

    program = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        f"import {', '.join(f'ottla.{name}' for name in PACKAGES)}\n"
        f"print(*(list(getattr(ottla, name).__path__)[0] for name in {PACKAGES!r}))"
    )
    # -S leaves out the site folder with the editable install, so only the wheel can answer.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], cwd=tmp_path, capture_output=True, check=True, text=True
    )

    assert done.stdout.split() == [str(site / "ottla" / name) for name in PACKAGES]
