"""`ottla backup` of a broker that runs, under load and while it compacts, and `ottla restore`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio
from confluent_kafka import Producer

from ottla.cli.folders.backup import archive, snapshot
from ottla.cli.folders.backup.errors import BackupError
from ottla.cli.folders.backup.metadata import counts_anew
from ottla.cli.folders.lock_holder import lock_owner
from ottla.metadata import keys
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.metadata.image_delta import evolve
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.store import KeyValue, Put
from ottla.storage.disk import RealDisk
from ottla.storage.node_dir import NodeDir

COMPACTED = ("-c", "cleanup.policy=compact", "-c", "min.cleanable.dirty.ratio=0.01", "-c", "segment.bytes=1048576")
PARTITIONS = 3
KEYS = 50
BACKUPS = 2


@pytest.fixture
def broker(make_broker: Callable[..., Any], tmp_path: Path) -> Any:
    return make_broker(tmp_path / "data", "--set", "log.cleaner.backoff.ms=50")


@pytest.fixture
def make_broker(broker_class: type[Any]) -> Iterator[Callable[..., Any]]:
    running: list[Any] = []

    def make(*arguments: Any) -> Any:
        running.append(broker_class(*arguments))
        return running[-1]

    yield make
    for each in running:
        if each.process.poll() is None:
            assert each.stop() == 0


class Load:
    """Sends numbers to `plain` (by partition) and `compacted` (by key) until it is stopped; notes what was acked."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        # Per partition, or key, the last number that was acknowledged; numbers ascend.
        self.acked: dict[tuple[str, int], int] = {}
        self.failures: list[str] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.failures == []

    def _run(self) -> None:
        filler = "x" * 500
        number = 0
        while not self._stop.is_set():
            value = f"{number} {filler}"
            for topic, place, options in (
                ("plain", number % PARTITIONS, {"partition": number % PARTITIONS}),
                ("compacted", number % KEYS, {"key": str(number % KEYS)}),
            ):
                self._producer.produce(topic, value, on_delivery=self._on_delivery((topic, place), number), **options)
            number += 1
            self._producer.poll(0)
            while len(self._producer) > 2000:
                self._producer.poll(0.01)
        self._producer.flush()

    def _on_delivery(self, place: tuple[str, int], number: int) -> Callable[..., None]:
        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acked[place] = number

        return delivered


def read(broker: Any, topic: str) -> list[tuple[int, str, int]]:
    """Partition, key and number of every record of a topic, in the order of each partition."""
    lines = broker.run("consume", topic, "-f", "%p %k %s\\n").stdout.decode().splitlines()
    return [(int(p), key, int(number)) for p, key, number, _ in (line.split(" ") for line in lines)]


def test_a_backup_under_load_has_all_that_was_acknowledged(
    broker: Any, make_broker: Callable[..., Any], tmp_path: Path
) -> None:
    broker.run("topic", "create", "plain", "-p", str(PARTITIONS))
    broker.run("topic", "create", "compacted", *COMPACTED)
    rewritten = re.compile(r"\d{20}-\d+\.data")
    known: list[dict[tuple[str, int], int]] = []
    names: set[str] = set()
    deadline = time.monotonic() + 60
    with Load(broker.address) as load:
        while len(known) < BACKUPS or not any(map(rewritten.search, names)):
            assert time.monotonic() < deadline, f"nothing was compacted: {sorted(names)}"
            until = load.acked.get(("plain", 0), 0) + 1500
            while load.acked.get(("plain", 0), 0) < until:
                time.sleep(0.01)
            known.append(dict(load.acked))
            target = tmp_path / f"backup-{len(known)}"
            done = broker.run("backup", "--data-dir", str(tmp_path / "data"), str(target), "--json")
            manifest = json.loads(done.stdout)
            assert manifest["was_running"] is True
            names |= set(manifest["files"])
    assert broker.stop() == 0

    for number, acked in list(enumerate(known, 1))[-BACKUPS:]:
        folder = tmp_path / f"restored-{number}"
        broker.run("restore", str(tmp_path / f"backup-{number}"), "--data-dir", str(folder))
        checked = broker.run("fsck", "--data-dir", str(folder), check=False)
        assert checked.returncode in (0, 3), checked.stdout
        restored = make_broker(folder)
        plain, compacted = read(restored, "plain"), read(restored, "compacted")
        assert restored.stop() == 0
        for partition in range(PARTITIONS):
            found = [n for p, _, n in plain if p == partition]
            assert found == list(range(partition, partition + PARTITIONS * len(found), PARTITIONS))
            assert found[-1] >= acked["plain", partition]
        latest = {key: n for _, key, n in compacted}
        assert [n for *_, n in compacted] == sorted({n for *_, n in compacted})
        assert all(latest[str(key)] >= acked["compacted", key] for key in range(KEYS))


class Transactions:
    """Sends each number to `left` and `right` in one transaction, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": "both", "transaction.timeout.ms": 3000}
        self._producer = Producer(settings)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.committed = -1

    def __enter__(self) -> Transactions:
        self._producer.init_transactions()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.begin_transaction()
            for topic in ("left", "right"):
                self._producer.produce(topic, str(number))
            self._producer.commit_transaction()
            self.committed = number
            number += 1


def test_a_transaction_is_in_a_backup_as_a_whole_or_not_at_all(
    broker: Any, make_broker: Callable[..., Any], tmp_path: Path
) -> None:
    broker.run("topic", "create", "left", "right")
    known = []
    with Transactions(broker.address) as load:
        for number in range(BACKUPS):
            while load.committed < 10 * (number + 1):
                time.sleep(0.01)
            known.append(load.committed)
            broker.run("backup", "--data-dir", str(tmp_path / "data"), str(tmp_path / f"backup-{number}"))
    assert broker.stop() == 0

    for number, committed in enumerate(known):
        folder = tmp_path / f"restored-{number}"
        broker.run("restore", str(tmp_path / f"backup-{number}"), "--data-dir", str(folder))
        restored = make_broker(folder, "--set", "transaction.abort.timed.out.transaction.cleanup.interval.ms=200")
        deadline = time.monotonic() + 60
        while True:  # What was open is aborted when its time is over.
            (state,) = json.loads(restored.run("transaction", "list", "--json").stdout)
            if state["state"].startswith("Complete"):
                break
            assert time.monotonic() < deadline, state
            time.sleep(0.1)
        left, right = (restored.run("consume", topic, "--read-committed").stdout.split() for topic in ("left", "right"))
        assert restored.stop() == 0
        assert left == right == [b"%d" % n for n in range(len(left))]
        assert len(left) > committed


def test_a_backup_of_a_stopped_broker_is_the_folder_itself(
    broker: Any, make_broker: Callable[..., Any], tmp_path: Path
) -> None:
    broker.run("produce", "t", stdin=b"a\nb\n")
    assert broker.stop() == 0
    done = broker.run("backup", "--data-dir", str(tmp_path / "data"), str(tmp_path / "backup"))
    assert b"of a stopped broker" in done.stdout
    done = broker.run("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "restored"))
    assert b"is as it was on" in done.stdout
    assert broker.run("fsck", "--data-dir", str(tmp_path / "restored")).returncode == 0
    assert make_broker(tmp_path / "restored").run("consume", "t").stdout == b"a\nb\n"


def test_the_links_are_gone_after_a_backup(broker: Any, tmp_path: Path) -> None:
    before = set(os.listdir(tmp_path / "data"))
    broker.run("backup", "--data-dir", str(tmp_path / "data"), str(tmp_path / "backup"))
    assert {name for name in os.listdir(tmp_path / "data") if name.startswith(".")} == set()
    assert before <= set(os.listdir(tmp_path / "data"))


def test_the_broker_goes_on_when_a_backup_is_killed_in_its_pause(broker: Any) -> None:
    """The guard lets it go on."""
    script = (
        "import os, signal, sys\n"
        "from ottla.cli.folders.backup.pause import paused\n"
        "with paused([int(sys.argv[1])]):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(broker.process.pid)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert broker.run("topic", "list").returncode == 0


def test_a_broker_that_starts_in_the_meantime_is_not_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files do not belong together then: a checkpoint may know of more than was linked before it."""
    node = tmp_path / "data" / "node-1"
    node.mkdir(parents=True)
    (node / "lock").touch()
    locks: list[int] = []

    def owner_before_the_start(path: Path) -> int | None:
        owner = lock_owner(path)
        if not locks:
            locks.append(RealDisk().lock(str(path)))
        return owner

    monkeypatch.setattr(snapshot, "lock_owner", owner_before_the_start)
    try:
        with pytest.raises(BackupError, match="was started"), snapshot.taken(tmp_path / "data"):
            pass
    finally:
        os.close(*locks)
    with snapshot.taken(tmp_path / "data") as taken:
        assert not taken.was_running


def test_a_broker_that_has_run_in_the_meantime_was_not_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has ended again when the locks are looked at."""
    node = tmp_path / "data" / "node-1"
    node.mkdir(parents=True)
    (node / "lock").touch()
    link_all = snapshot._Linker.link_all

    def link_while_it_runs(linker: Any, nodes: Any) -> Any:
        node_dir = NodeDir(RealDisk(), str(tmp_path / "data"), 1)
        node_dir.open()
        node_dir.close(clean=True)
        return link_all(linker, nodes)

    monkeypatch.setattr(snapshot._Linker, "link_all", link_while_it_runs)
    with pytest.raises(BackupError, match="was started"), snapshot.taken(tmp_path / "data"):
        pass


def can_unshare() -> bool:
    return subprocess.run([*APART, "true"], check=False, capture_output=True).returncode == 0


APART = ("unshare", "-Urpf", "--mount-proc")


@pytest.mark.skipif(not can_unshare(), reason="needs unshare and user namespaces")
def test_a_broker_in_another_pid_namespace_is_not_taken_for_stopped(broker: Any, tmp_path: Path) -> None:
    """As from a sidecar container: nothing there shows whose the lock is, but it is held."""
    data = str(tmp_path / "data")

    def refusal(*words: str) -> str:
        done = subprocess.run(
            [*APART, sys.executable, "-m", "ottla.cli", *words], check=False, capture_output=True, timeout=60
        )
        assert done.returncode == 1, done.stdout
        return done.stderr.decode()

    assert "cannot be seen from here" in refusal("backup", "--data-dir", data, str(tmp_path / "backup"))
    assert not (tmp_path / "backup" / "backup.json").exists()
    moved = refusal("cluster", "move-metadata", "--from", data, "--to", str(tmp_path))
    assert "is in use by another process" in moved
    assert "is in use by another process" in refusal("fsck", "--data-dir", data)
    assert broker.run("topic", "list").returncode == 0
    assert {name for name in os.listdir(data) if name.startswith(".")} == set()


def test_who_tries_a_lock_keeps_nobody_from_starting(tmp_path: Path) -> None:
    """It is held for the moment of the trial."""
    lock = tmp_path / "lock"
    stop = threading.Event()

    def keep_trying() -> None:
        while not stop.is_set():
            lock_owner(lock)

    disk = RealDisk()
    with (tmp_path / "lock").open("xb"):
        thread = threading.Thread(target=keep_trying)
        thread.start()
        try:
            for _ in range(200):
                disk.close(disk.lock(str(lock)))
        finally:
            stop.set()
            thread.join()


def test_the_metadata_is_of_the_moment_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is moved between replicas right afterwards counts on replicas that have it only then."""
    data = tmp_path / "data"
    for node_id in (1, 2):
        (data / f"node-{node_id}").mkdir(parents=True)
        (data / f"node-{node_id}" / "lock").touch()

    def write(value: bytes) -> None:
        async def commit() -> None:
            store = await open_sqlite_store(data / "cluster.sqlite", lambda: 0)
            await store.commit([], [Put("/topics/t", value)])
            await store.close()

        trio.run(commit)

    write(b"on 1")
    copy = archive._copy

    def copy_after_a_move(source: Path, target: Path, size_bytes: int) -> int:
        write(b"on 2")
        return copy(source, target, size_bytes)

    monkeypatch.setattr(archive, "_copy", copy_after_a_move)
    archive.back_up(data, tmp_path / "backup", "1.0", lambda done, total: None)

    async def read() -> bytes:
        store = await open_sqlite_store(tmp_path / "backup" / "cluster.sqlite", lambda: 0)
        entry = await store.get("/topics/t")
        await store.close()
        assert entry is not None
        return entry.value

    assert trio.run(read) == b"on 1"


TOPIC = UUID(int=77)


def image_of(*states: PartitionState) -> MetadataImage:
    topic = KeyValue(keys.topic("t"), keys.encode_topic(TOPIC, [state.replicas for state in states], {}), 1, 1)
    partitions = [
        KeyValue(keys.partition(TOPIC, number), keys.encode_partition(state, {}), 1, 1)
        for number, state in enumerate(states)
    ]
    return evolve(MetadataImage(), 1, [topic, *partitions], ()).after


@pytest.mark.parametrize(
    ("after", "anew"),
    [
        pytest.param({}, False, id="nothing has changed"),
        pytest.param({"isr": (1, 3), "partition_epoch": 6}, False, id="another node has fallen behind"),
        pytest.param(
            {"isr": (1, 2, 3), "replicas": (1, 2, 3, 4), "partition_epoch": 6}, False, id="one is being added"
        ),
        pytest.param({"leader": 3, "leader_epoch": 8, "partition_epoch": 6}, False, id="another leads"),
        pytest.param({"isr": (1, 2, 3, 4), "partition_epoch": 6}, True, id="ours has caught up"),
        pytest.param({"elr": (4,), "partition_epoch": 6}, True, id="ours may lead"),
        pytest.param({"partition_epoch": 7}, True, id="ours may have been away"),
        pytest.param({"isr": (2, 3), "leader": 2, "partition_epoch": 7}, False, id="ours is not counted on"),
        pytest.param({"isr": (5,), "replicas": (5,), "leader": 5, "partition_epoch": 9}, False, id="moved to others"),
    ],
)
def test_when_a_copy_may_lack_what_the_metadata_counts_on(after: dict[str, Any], anew: bool) -> None:
    before = PartitionState(leader=1, replicas=(1, 2, 3, 4), isr=(1, 2, 3), leader_epoch=7, partition_epoch=5)
    assert counts_anew(image_of(before), image_of(before._replace(**after)), [1, 4]) is anew


def test_who_is_counted_on_anew_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And if that does not end, the backup is refused."""
    node = tmp_path / "data" / "node-1"
    node.mkdir(parents=True)
    monkeypatch.setattr(archive, "_PAUSE_SECONDS", 0)

    class Metadata:
        def __init__(self, moves: int) -> None:
            self.moves = moves

        def read(self) -> None: ...

        def read_again(self, node_ids: Any) -> bool:
            assert node_ids == [1]
            (node / str(self.moves)).touch()
            self.moves -= 1
            return self.moves >= 0

        def write(self, target: Path) -> None:
            target.touch()

    manifest = archive.back_up(tmp_path / "data", tmp_path / "a", "1", lambda *_: None, metadata=Metadata(2))
    assert set(manifest["files"]) == {"cluster.sqlite", "node-1/2", "node-1/1"}
    with pytest.raises(BackupError, match="kept changing"):
        archive.back_up(tmp_path / "data", tmp_path / "b", "1", lambda *_: None, metadata=Metadata(1000))


def test_what_is_no_backup_is_refused(broker: Any, tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "backup"
    broker.run("produce", "t", stdin=b"a\nb\n")
    broker.run("backup", "--data-dir", str(data_dir), str(backup))

    def refusal(*arguments: str) -> str:
        done = broker.run(*arguments, check=False)
        assert done.returncode == 1
        assert done.stderr.count(b"\n") == 1
        return str(done.stderr.decode())

    assert "is not empty" in refusal("backup", "--data-dir", str(data_dir), str(backup))
    assert "not a data folder" in refusal("backup", "--data-dir", str(tmp_path / "none"), str(tmp_path / "other"))
    assert "is not empty" in refusal("restore", str(backup), "--data-dir", str(data_dir))
    assert "not a complete backup" in refusal("restore", str(data_dir), "--data-dir", str(tmp_path / "a"))
    (segment,) = (backup / "node-1").glob("t.*/0/*.data")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    assert "is damaged" in refusal("restore", str(backup), "--data-dir", str(tmp_path / "b"))
    segment.write_bytes(content[:-1])
    assert "is shorter" in refusal("restore", str(backup), "--data-dir", str(tmp_path / "c"))
    assert not (tmp_path / "c" / "node-1").exists()
    (backup / "backup.json").write_text('{"format_version": 2}')
    assert "format version 2" in refusal("restore", str(backup), "--data-dir", str(tmp_path / "d"))
