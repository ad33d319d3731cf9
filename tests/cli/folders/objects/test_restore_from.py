"""`ottla restore --from`: whatever ends it in the middle, nothing is lost, and the next one finds the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
import trio

from ottla.cli import main
from ottla.cli.folders.objects import restore
from ottla.cli.folders.objects.found_cluster import find_cluster
from ottla.cli.tiers.place import Place
from ottla.metadata import keys
from ottla.metadata.snapshot import encode_snapshot
from ottla.metastore.store import KeyValue
from ottla.tiers.errors import SupersededError
from ottla.tiers.names import SnapshotNames
from ottla.tiers.object_store import ObjectStore
from ottla.tiers.snapshot import SnapshotFile
from ottla.tiers.stores.folder_store import FolderObjectStore
from tests.tiers.faults import FaultyObjectStore, NodeKilledError
from tests.tiers.logs import log_of
from tests.tiers.tier import NAMES, Tier

Run = Callable[..., tuple[int, str, str]]
TIERED = {"remote.storage.enable": "true"}
GONE = UUID(int=9)


def snapshot() -> bytes:
    """Of `trips`, and of topics without an object."""
    topics = {"trips": NAMES.topic_id, "plain": UUID(int=8), "gone": GONE}
    entries = [
        (keys.CLUSTER_ID, keys.encode(NAMES.cluster_id)),
        (keys.PRODUCER_IDS, keys.encode(3000)),
        *(
            (keys.topic(name), keys.encode_topic(topic_id, [(1,), (1,)], TIERED if name == "trips" else {}))
            for name, topic_id in topics.items()
        ),
    ]
    return encode_snapshot(KeyValue(key, value, 1, 1) for key, value in entries)


async def fill(store: ObjectStore, *, has_snapshot: bool = True) -> None:
    await Tier(store).copy([log_of(0), log_of(1)])
    if has_snapshot:

        async def collect() -> bytes:
            return snapshot()

        await SnapshotFile(store, SnapshotNames(NAMES.cluster_id).metadata).write(0, 0, 1000, collect)
        await store.put(f"{NAMES.cluster_id}/deleted/{GONE.hex}", b"{}")


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = tmp_path / "remote"
    folder.mkdir()
    return folder


@pytest.fixture
def run(remote: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["restore", "--from", f"file://{remote}", "--data-dir", str(tmp_path / "data"), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def segments(remote: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in remote.rglob("segments/*")}


def killed(run: Run) -> tuple[int, str, str] | None:
    """What the command has said; None if it was killed."""
    try:
        return run("--json")
    except NodeKilledError:
        return None
    except BaseExceptionGroup as group:
        if group.split(NodeKilledError)[1] is not None:
            raise
        return None


def test_an_end_in_the_middle_changes_nothing_that_counts(
    remote: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = FolderObjectStore(remote)
    trio.run(fill, folder)
    before = segments(remote)
    for number in count(1):
        store = FaultyObjectStore(folder)
        store.kill_at(number, is_done=True)
        monkeypatch.setattr(restore, "open_place", lambda config, store=store: Place("file:", store))
        result = killed(run)
        if result is not None:
            break
        assert segments(remote) == before
        assert not list((tmp_path / "data").glob("node-*"))
    assert result is not None
    code, said, _ = result
    assert number > 10
    assert code == 0
    assert segments(remote) == before
    found = {(it["topic"], it["partition"]): it for it in json.loads(said)["partitions"]}
    assert sorted(found) == [("plain", 0), ("plain", 1), ("trips", 0), ("trips", 1)]
    assert [it["copied_end"] for it in found.values() if it["topic"] == "trips"] == [60, 60]
    assert json.loads(said)["deleted"] == ["gone"]


def test_without_a_snapshot_topics_are_guessed(remote: Path, run: Run) -> None:
    async def begin() -> None:
        await fill(FolderObjectStore(remote), has_snapshot=False)

    trio.run(begin)
    code, said, _ = run()
    assert code == 0
    assert "guessed: trips, with 2 partitions" in said
    assert "there is no snapshot" in said


def test_a_folder_that_is_not_empty_is_refused_before_anything_is_changed(
    remote: Path, tmp_path: Path, run: Run
) -> None:
    trio.run(fill, FolderObjectStore(remote))
    before = {path: path.read_bytes() for path in remote.rglob("*") if path.is_file()}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").touch()
    code, _, errors = run()
    assert code == 1
    assert "is not empty" in errors
    assert {path: path.read_bytes() for path in remote.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["snapshots/metadata", "manifests/0000000001"])
def test_what_is_damaged_is_named(remote: Path, tmp_path: Path, run: Run, name: str) -> None:
    trio.run(fill, FolderObjectStore(remote))
    (path,) = remote.rglob(name)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    code, _, errors = run()
    assert code == 1
    assert "does not have its checksum" in errors
    assert not (tmp_path / "data").exists() or not list((tmp_path / "data").glob("node-*"))


def test_of_two_restorations_at_once_one_wins(remote: Path) -> None:
    async def both() -> list[str]:
        store = FolderObjectStore(remote)
        await fill(store)
        finds = [await find_cluster(store, NAMES.cluster_id) for _ in range(2)]
        results = []
        for found in finds:
            try:
                await restore._take_over(found, 1, 1_000_000)
                results.append("took over")
            except SupersededError as error:
                results.append(str(error))
        return results

    first, second = trio.run(both)
    assert first == "took over"
    assert "written by somebody else" in second
