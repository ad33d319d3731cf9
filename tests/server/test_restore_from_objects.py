"""A cluster out of its objects alone: what it has, where it goes on, and that the one before it is shut out."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import admin as confluent_admin

from ottla.cli import main
from ottla.cli.folders.objects.found_cluster import FoundCluster, find_cluster
from ottla.kproto.records import iter_batches
from ottla.testing import Broker
from ottla.tiers.listing import find_clusters
from ottla.tiers.stores.folder_store import FolderObjectStore

_ADMIN: Any = confluent_admin
DEADLINE_S = 90.0
FEW = 2500
GAP = 1_000_000_000
TIERED = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "local.retention.ms": "1",
    "segment.bytes": "1048576",
}
QUICK = {
    "remote.log.manager.task.interval.ms": "50",
    "ottla.remote.snapshot.interval.ms": "100",
    "log.segment.bytes": "1048576",
    "ottla.checkpoint.bytes": "1048576",
}

Records = list[tuple[int, bytes]]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def broker_in(folder: Path, remote: Path) -> Broker:
    return Broker(config=QUICK | {"ottla.remote.url": f"file://{remote}"}, data_dir=folder)


def produce(broker: Broker, topic: str, values: list[bytes]) -> list[int]:
    """The offsets that are acknowledged."""
    taken: list[int] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        taken.append(message.offset())

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.size": 50_000})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    return sorted(taken)


def consume(broker: Broker, topic: str, count: int, offset: int | None = None, group: str = "g") -> Records:
    """Records from an offset on, or from where the group has committed; then the group has committed what follows."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "error"}
    found: Records = []
    with closing(Consumer(config | {"enable.auto.commit": False})) as consumer:
        place = TopicPartition(topic, 0) if offset is None else TopicPartition(topic, 0, offset)
        consumer.assign([place])
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count:
            assert time.monotonic() < deadline, len(found)
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                assert error is None or error.code() == KafkaError.UNKNOWN, error
                if error is None:
                    found.append((message.offset() or 0, message.value() or b""))
        del found[count:]
        consumer.commit(offsets=[TopicPartition(topic, 0, found[-1][0] + 1)], asynchronous=False)
    return found


def values(first: int, count: int) -> list[bytes]:
    return [b"%08d" % number + b"x" * 500 for number in range(first, first + count)]


def create(broker: Broker, name: str, **configs: str) -> None:
    admin = _ADMIN.AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = _ADMIN.NewTopic(name, 1, 1, config={name.replace("_", "."): it for name, it in configs.items()})
    admin.create_topics([topic])[name].result(30)


def found_in(remote: Path) -> FoundCluster | None:
    """What the object store has; None before there is anything."""

    async def look() -> FoundCluster | None:
        store = FolderObjectStore(remote)
        clusters = await find_clusters(store)
        return await find_cluster(store, clusters[0]) if clusters else None

    return trio.run(look)


def copied_end(remote: Path) -> int:
    """Up to which offset the object store has `trips`."""
    found = found_in(remote)
    manifests = [] if found is None else [file.manifest for file in found.files.values()]
    return max((it.end_offset for it in manifests if it is not None), default=0)


def is_copied(remote: Path) -> bool:
    """Whether the snapshots have all that is asked for below."""
    found = found_in(remote)
    if found is None or found.schemas is None:
        return False
    committed = sum(header.record_count for it in found.offsets.values() for _, header in iter_batches(it.content))
    return committed == 3 and sorted(found.ends.values()) == [1, 10, FEW] and copied_end(remote) > 0


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = tmp_path / "remote"
    folder.mkdir()
    return folder


@pytest.fixture
def lost(tmp_path: Path, remote: Path) -> Records:
    """What a cluster has acknowledged in `trips`; its disk is gone."""
    with broker_in(tmp_path / "old", remote) as broker:
        create(broker, "trips", **TIERED)
        create(broker, "plain", retention_ms="123456")
        produced = values(0, FEW)
        assert produce(broker, "trips", produced) == list(range(FEW))
        produce(broker, "plain", values(0, 10))
        produce(broker, "_schemas", [b"a schema"])
        consume(broker, "trips", FEW, 0)
        consume(broker, "trips", 100, 0, "early")
        consume(broker, "plain", 10, 0)
        until(lambda: is_copied(remote))
    shutil.copytree(tmp_path / "old", tmp_path / "kept")
    shutil.rmtree(tmp_path / "old")
    return list(enumerate(produced))


def test_a_cluster_of_objects(tmp_path: Path, remote: Path, lost: Records, capsys: pytest.CaptureFixture[str]) -> None:
    copied = copied_end(remote)
    assert 0 < copied < FEW
    new = tmp_path / "new"
    assert main(["restore", "--from", f"file://{remote}", "--data-dir", str(new), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (trips,) = [it for it in said["partitions"] if it["topic"] == "trips"]
    assert trips == {
        "topic": "trips",
        "partition": 0,
        "start_offset": 0,
        "copied_end": copied,
        "known_end": FEW,
        "first_new": 2 * GAP,
    }
    assert said["committed_offsets"] == 3
    assert said["schema_records"] == 1
    with broker_in(new, remote) as broker:
        assert consume(broker, "trips", copied, 0, "reader") == lost[:copied]
        # What was committed is beyond what was copied: nothing new is passed over.
        assert produce(broker, "trips", values(FEW, FEW)) == list(range(2 * GAP, 2 * GAP + FEW))
        new_records = list(enumerate(values(FEW, FEW), 2 * GAP))
        assert consume(broker, "trips", FEW) == new_records
        wanted = lost[100:copied] + new_records
        assert consume(broker, "trips", len(wanted), group="early") == wanted
        assert produce(broker, "plain", [b"new"]) == [2 * GAP]
        assert consume(broker, "plain", 1) == [(2 * GAP, b"new")]
        assert consume(broker, "_schemas", 1, 0) == [(0, b"a schema")]
        # It goes on in the object store.
        until(lambda: copied_end(remote) > 2 * GAP)
        assert consume(broker, "trips", len(wanted), 100) == wanted


def contents(remote: Path) -> dict[str, bytes]:
    """All objects but those that tell the time, and where a node's logs end."""
    files = [path for path in remote.rglob("*") if path.is_file() and path.parent.name not in ("probes", "ends")]
    return {str(path.relative_to(remote)): path.read_bytes() for path in files}


def test_the_cluster_before_changes_nothing_any_more(tmp_path: Path, remote: Path) -> None:
    with broker_in(tmp_path / "old", remote) as old:
        create(old, "trips", **TIERED)
        produced = values(0, 2 * FEW)
        produce(old, "trips", produced)
        until(lambda: copied_end(remote) > FEW and any(remote.rglob("snapshots/metadata")))
        assert main(["restore", "--from", f"file://{remote}", "--data-dir", str(tmp_path / "new")]) == 0
        restored = contents(remote)
        copied = copied_end(remote)
        # It still lives, and would copy this, write snapshots, and delete the objects.
        produce(old, "trips", values(0, 2 * FEW))
        create(old, "other", **TIERED)
        admin = _ADMIN.AdminClient({"bootstrap.servers": old.bootstrap})
        admin.delete_topics(["trips"])["trips"].result(30)
        node = old._thread
        assert node is not None
        storage = node.ready.broker.remote_storage
        assert storage is not None
        until(lambda: {"deleted topics", "the snapshot of the cluster"} <= storage.failing.keys())
        now = contents(remote)
        # Uploads that are named by nobody are swept a day later.
        assert {name: now.get(name) for name in restored} == restored
    with broker_in(tmp_path / "new", remote) as new:
        assert consume(new, "trips", copied, 0) == list(enumerate(produced))[:copied]
        assert produce(new, "trips", [b"new"]) == [2 * GAP]
        until(lambda: found_in(remote).generation == 1)  # type: ignore[union-attr]
        admin = _ADMIN.AdminClient({"bootstrap.servers": new.bootstrap})
        assert "other" not in admin.list_topics(timeout=30).topics
