"""`ottla fsck --remote`: what is whole is sound, what is damaged is named, and what cannot be asked is no damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli import main
from ottla.tiers.manifest import Manifest
from ottla.tiers.stores.folder_store import FolderObjectStore
from tests.tiers.logs import log_of
from tests.tiers.tier import NAMES, Tier

Run = Callable[..., tuple[int, str, str]]


async def copy_to(folder: Path) -> Manifest:
    """Two segments of partition 0, and one of partition 1."""
    tier = Tier(FolderObjectStore(folder))
    await tier.copy([log_of(0), log_of(1)])
    manifest = (await tier.copy([log_of(0, offset=60, previous_epoch=1)]))[0]
    assert isinstance(manifest, Manifest)
    return manifest


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = tmp_path / "remote"
    folder.mkdir()
    return folder


@pytest.fixture
def manifest(remote: Path) -> Manifest:
    return trio.run(copy_to, remote)


@pytest.fixture
def fsck(remote: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, url: str = f"file://{remote}") -> tuple[int, str, str]:
        code = main(["fsck", "--remote", *(["--remote-url", url] if url else []), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def size_of(remote: Path) -> int:
    return sum(path.stat().st_size for path in remote.rglob("segments/*") if path.suffix != ".index")


@pytest.mark.parametrize("words", [[], ["--read-all"], ["--topic", "trips"], ["--cluster-id", NAMES.cluster_id]])
def test_what_is_whole_is_sound(remote: Path, manifest: Manifest, fsck: Run, words: list[str]) -> None:
    code, said, errors = fsck(*words)
    counts = f"1 topic, 2 partitions, 3 segments, {size_of(remote)} bytes"
    assert (code, said, errors) == (0, f"{counts} in file://{remote}: sound\n", "")


def test_the_place_may_be_a_brokers_setting(
    remote: Path, manifest: Manifest, fsck: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ottla.toml").write_text(f'[ottla.remote]\nurl = "file://{remote}"\n')
    (tmp_path / "server.properties").write_text(f"ottla.remote.url=file://{remote}\n")
    for name in ("ottla.toml", "server.properties"):
        assert fsck("--config", str(tmp_path / name), url="")[0] == 0
    assert fsck(url="") == (
        1,
        "",
        "ottla fsck: ottla.remote.url is not set: name the object store with --remote-url or --config\n",
    )
    monkeypatch.setenv("OTTLA_REMOTE_URL", f"file://{remote}")
    assert fsck(url="")[0] == 0
    assert "file:///nowhere" in fsck(url="file:///nowhere")[2]


def test_damage_is_named(remote: Path, manifest: Manifest, fsck: Run) -> None:
    part = remote / NAMES.part(manifest[1].upload, 1)
    content = bytearray(part.read_bytes())
    content[7] ^= 1
    part.write_bytes(content)
    # Nobody has looked at it.
    assert fsck()[0] == 0
    code, said, _ = fsck("--read-all", "--json")
    report: dict[str, Any] = json.loads(said)
    (finding,) = report["findings"]
    assert code == report["exit_code"] == 4
    assert (report["topics"], report["partitions"], report["segments"]) == (1, 2, 3)
    assert report["bytes"] == size_of(remote)
    assert (finding["topic"], finding["topic_id"], finding["cluster_id"]) == ("trips", str(NAMES.topic_id), "cluster")
    assert 60 < finding["first_offset"] < finding["last_offset"] < 120
    assert (finding["severity"], finding["partition"]) == ("error", 0)
    (remote / NAMES.manifest(1)).write_bytes(b"nonsense")
    (remote / NAMES.index(manifest[0].upload)).unlink()
    code, said, _ = fsck("--read-all")
    lines = said.splitlines()
    assert code == 4
    assert lines[0].startswith("error: trips-0, offsets 0 to 59: there is no object ")
    first, last = finding["first_offset"], finding["last_offset"]
    assert lines[1] == f"error: trips-0, offsets {first} to {last}: {finding['message']}"
    assert lines[2] == "error: trips-1: the manifest of partition 1 is too short, or none"
    assert lines[3].endswith(f" in file://{remote}: 3 findings")
    assert len(lines) == 4


def test_what_is_no_manifest_is_noted(remote: Path, manifest: Manifest, fsck: Run) -> None:
    (remote / NAMES.manifests / "notes").write_bytes(b"x")
    code, said, _ = fsck()
    assert (code, said.splitlines()[0]) == (
        0,
        f"note: {NAMES.manifests}notes is no manifest: nothing of the topic is swept",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "trips", "--topic", "other"], "has no objects of the topic other: is it what"),
        (["--cluster-id", "other"], "has no objects of any topic: is it what"),
        (["--delete-unknown"], "--remote removes nothing"),
        (["--delete-stray", "--yes"], "--remote removes nothing"),
    ],
)
def test_what_is_not_checked_is_not_sound(manifest: Manifest, fsck: Run, words: list[str], said: str) -> None:
    code, out, errors = fsck(*words)
    assert (code, out) == (1, "")
    assert said in errors


def test_a_store_that_does_not_answer_is_not_sound(manifest: Manifest, remote: Path, fsck: Run) -> None:
    aside = remote.rename(remote.with_name("aside"))
    code, out, errors = fsck()
    assert (code, out) == (1, "")
    assert errors == f"ottla fsck: file://{remote}: {remote} is not there\n"
    aside.rename(remote)
    for url in ("ftp://host/x", "file://host/x", "s3://key@bucket/x"):
        code, out, errors = fsck(url=url)
        assert (code, out) == (1, "")
        assert "ottla.remote.url" in errors
