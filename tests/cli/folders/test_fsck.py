"""`ottla fsck --delete-unknown` and `--delete-stray`: nothing goes without `--yes`, or without the metadata."""

from __future__ import annotations

import ctypes
import errno
import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.cli import main
from ottla.kproto.records import Record, build_batch
from ottla.metadata import keys
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.store import Put
from ottla.storage.clock import SystemClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.format.topic_file import topic_folder_name
from ottla.storage.kept_logs import KeptLog, write_kept_logs
from ottla.storage.log_manager import LogManager
from ottla.storage.node_dir import NodeDir

KNOWN, UNKNOWN = UUID(int=1), UUID(int=2)


async def _make_node(data_dir: Path) -> None:
    store = await open_sqlite_store(data_dir / "cluster.sqlite", SystemClock().time_ms)
    cluster = Put(keys.CLUSTER_ID, keys.encode("a cluster"))
    await store.commit([], [cluster, Put(keys.topic("known"), keys.encode_topic(KNOWN, [[1]], {}))])
    await store.close()
    manager = LogManager(RealDisk(), data_dir, StorageConfig(), SystemClock(), node_id=1)
    async with manager.run():
        for topic_id in (KNOWN, UNKNOWN):
            log = await manager.open_log(topic_id, "topic", 0, LogConfig())
            batch = memoryview(bytearray(build_batch([Record(value=b"x", timestamp_ms=1)])))
            log.append_as_leader(batch, None, leader_epoch=0, now_ms=1)


@pytest.fixture
def read_only(tmpfs: Path) -> Path:
    """The folder of a node on a file system that takes no changes."""
    trio.run(_make_node, tmpfs)
    libc = ctypes.CDLL(None, use_errno=True)
    remount, read_only = 32, 1
    assert libc.mount(None, str(tmpfs).encode(), None, remount | read_only, None) == 0
    return tmpfs


def test_a_read_only_folder_is_checked_all_the_same(read_only: Path, capsys: Any) -> None:
    assert main(["fsck", "--data-dir", str(read_only)]) in (0, 3)  # whether blocks wait for repair is chance
    said = capsys.readouterr().out
    assert "cluster.sqlite" not in said
    assert "2 stores" in said


def test_nothing_is_removed_from_a_read_only_folder(read_only: Path, capsys: Any) -> None:
    assert main(["fsck", "--data-dir", str(read_only), "--delete-unknown", "--yes"]) == 1
    assert f"ottla fsck: The metadata store {read_only}/cluster.sqlite cannot be opened" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["fsck --data-dir {}", "backup --data-dir {} {}/backup", "dump {}"])
def test_a_folder_that_may_not_be_read_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: str
) -> None:
    def refuse(path: Any, *_: object) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refuse)
    name, *rest = words.format(*[tmp_path] * 2).split()
    assert main([name, *rest]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"ottla {name}: ")
    assert str(tmp_path) in said
    assert said.endswith(": Permission denied\n")


def _folders(data_dir: Path) -> int:
    return len([path for path in (data_dir / "node-1").iterdir() if path.is_dir()])


def test_unknown_topics_are_named_and_removed_when_asked(tmp_path: Path, capsys: Any) -> None:
    trio.run(_make_node, tmp_path)
    words = ["fsck", "--data-dir", str(tmp_path), "--delete-unknown"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [topic["topic_id"] for topic in found["unknown"]] == [str(UNKNOWN)]
    assert not found["removed"]
    assert _folders(tmp_path) == 2
    assert main([*words, "--yes"]) == 0
    assert f"removed: topic {UNKNOWN}" in capsys.readouterr().out
    assert _folders(tmp_path) == 1
    assert main(words) == 0
    assert "every topic with data is known" in capsys.readouterr().out


@pytest.mark.parametrize("is_empty", [False, True])
def test_without_metadata_nothing_is_removed(tmp_path: Path, capsys: Any, is_empty: bool) -> None:
    trio.run(_make_node, tmp_path)
    for path in tmp_path.glob("cluster.sqlite*"):
        path.unlink()
    if is_empty:

        async def make_empty() -> None:
            await (await open_sqlite_store(tmp_path / "cluster.sqlite", SystemClock().time_ms)).close()

        trio.run(make_empty)
    assert main(["fsck", "--data-dir", str(tmp_path), "--delete-unknown", "--yes"]) == 1
    assert "every topic would be unknown" in capsys.readouterr().err
    assert _folders(tmp_path) == 2


def test_beside_a_running_broker_it_names_the_process(broker: Any, tmp_path: Path) -> None:
    for flags in ([], ["--delete-unknown"]):
        done = broker.run("fsck", "--data-dir", str(tmp_path / "data"), *flags, check=False)
        assert done.returncode == 1
        assert f"is in use by process {broker.process.pid} (" in done.stderr.decode()
        assert done.stderr.endswith(b"stop it first\n")


def test_metadata_that_has_moved_counts_no_topic_as_unknown(tmp_path: Path, capsys: Any) -> None:
    async def mark() -> None:
        store = await open_sqlite_store(tmp_path / "cluster.sqlite", SystemClock().time_ms)
        await store.commit([], [Put(keys.MOVED, keys.encode({"to": "etcd://etcd/ottla"}))])
        await store.close()

    trio.run(_make_node, tmp_path)
    trio.run(mark)
    assert main(["fsck", "--data-dir", str(tmp_path), "--delete-unknown", "--yes"]) != 0
    assert "has moved to etcd://etcd/ottla" in capsys.readouterr().err
    assert _folders(tmp_path) == 2


def test_a_folder_of_another_cluster_is_refused(tmp_path: Path, capsys: Any) -> None:
    trio.run(_make_node, tmp_path)
    node_dir = NodeDir(RealDisk(), str(tmp_path), 1)
    node_dir.open()
    node_dir.join("another")
    node_dir.close(clean=True)
    assert main(["fsck", "--data-dir", str(tmp_path), "--delete-unknown", "--yes"]) != 0
    assert "belongs to the cluster another, and the metadata is that of a cluster" in capsys.readouterr().err
    assert _folders(tmp_path) == 2


def test_missing_metadata_is_told_of_the_file_and_not_of_a_store(tmp_path: Path, capsys: Any) -> None:
    trio.run(_make_node, tmp_path)
    metadata = tmp_path / "cluster.sqlite"
    metadata.unlink()
    main(["fsck", "--data-dir", str(tmp_path)])
    told = capsys.readouterr().out
    assert f"note: {metadata} is missing; unless etcd keeps the metadata, see ottla restore" in told
    assert "in 1 store is missing" not in told


async def _set_replicas(data_dir: Path, replicas: list[int]) -> None:
    """What the metadata says of the known topic's partition."""
    store = await open_sqlite_store(data_dir / "cluster.sqlite", SystemClock().time_ms)
    await store.commit([], [Put(keys.topic("known"), keys.encode_topic(KNOWN, [replicas], {}))])
    await store.close()


def _folders_of(data_dir: Path, topic_id: UUID) -> list[Path]:
    return list((data_dir / "node-1").glob(topic_folder_name("topic", topic_id)))


@pytest.fixture
def with_stray(tmp_path: Path) -> Path:
    """A node's folder in which the log of the known topic was found to be stray."""
    trio.run(_make_node, tmp_path)
    trio.run(_set_replicas, tmp_path, [2])
    stray = KeptLog(KNOWN, 0, "topic", 0, 1, since_ms=1_700_000_000_000, is_stray=True)
    write_kept_logs(RealDisk(), str(tmp_path / "node-1"), [stray])
    return tmp_path


def test_a_stray_log_is_named_and_goes_when_that_is_asked_for(with_stray: Path, capsys: Any) -> None:
    flags = ["--data-dir", str(with_stray)]
    assert main(["fsck", *flags]) in (0, 3)  # whether blocks wait for repair is chance
    assert "topic-0, offsets 0 to 0: stray" in capsys.readouterr().out
    assert main(["doctor", "--port", "0", *flags]) in (0, 1)  # what else it finds is the machine's
    assert "topic-0, offsets 0 to 0: stray" in capsys.readouterr().out
    assert main(["fsck", "--delete-stray", *flags]) == 0
    out = capsys.readouterr().out
    assert "stray: topic-0 in node-1, offsets 0 to 0, since 2023-11-14 22:13+00:00" in out
    assert "nothing was removed" in out
    assert _folders_of(with_stray, KNOWN)
    assert main(["fsck", "--delete-stray", "--yes", *flags]) == 0
    assert "removed: topic-0" in capsys.readouterr().out
    assert not _folders_of(with_stray, KNOWN)
    assert _folders_of(with_stray, UNKNOWN)
    assert main(["fsck", "--delete-stray", *flags]) == 0
    assert "no log is stray" in capsys.readouterr().out


@pytest.mark.parametrize("replicas", [[1], [2, 1]])
def test_a_log_that_the_metadata_has_here_again_is_not_removed(
    with_stray: Path, replicas: list[int], capsys: Any
) -> None:
    trio.run(_set_replicas, with_stray, replicas)
    assert main(["fsck", "--delete-stray", "--yes", "--data-dir", str(with_stray)]) == 0
    assert "no log is stray" in capsys.readouterr().out
    assert _folders_of(with_stray, KNOWN)


def test_no_stray_log_is_removed_without_metadata(with_stray: Path, capsys: Any) -> None:
    for path in with_stray.glob("cluster.sqlite*"):
        path.unlink()
    assert main(["fsck", "--delete-stray", "--yes", "--data-dir", str(with_stray)]) == 1
    assert "is missing" in capsys.readouterr().err
    assert _folders_of(with_stray, KNOWN)
