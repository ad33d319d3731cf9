"""`ottla tier status`: what the object store has of each partition, and what of it is nowhere else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Producer

from ottla.cli import main
from ottla.testing import Broker
from ottla.tiers.stores.folder_store import FolderObjectStore
from tests.tiers.logs import log_of
from tests.tiers.tier import NAMES, Tier

DEADLINE_S = 90.0
RECORDS = 4000
VALUE = b"x" * 1000
SETTINGS = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "segment.bytes": "1048576",
}


class Status:
    """The command, run in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(["tier", "status", *words])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def json(self, *words: str) -> list[dict[str, Any]]:
        code, said, errors = self(*words, "--json")
        assert code == 0, errors
        found: list[dict[str, Any]] = json.loads(said)
        return found


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str]) -> Status:
    return Status(capsys)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = tmp_path / "remote"
    folder.mkdir()
    return folder


async def copy_to(folder: Path) -> None:
    tier = Tier(FolderObjectStore(folder))
    await tier.copy([log_of(0), log_of(1)])
    await tier.copy([log_of(0, offset=60, previous_epoch=1)])


def test_the_object_store_alone_says_what_it_has(remote: Path, status: Status) -> None:
    place = ["--offline", "--remote-url", f"file://{remote}"]
    assert status.json(*place) == []
    trio.run(copy_to, remote)
    assert status.json(*place, "--cluster-id", "other") == []
    first, second = status.json(*place)
    assert (first["cluster_id"], first["topic"], first["topic_id"]) == ("cluster", "trips", str(NAMES.topic_id))
    assert (first["partition"], first["log_start_offset"], first["end_offset"], first["segments"]) == (0, 0, 120, 2)
    assert (second["partition"], second["end_offset"], second["segments"]) == (1, 60, 1)
    parts = [path.stat().st_size for path in remote.rglob("segments/*") if path.suffix != ".index"]
    assert first["size_bytes"] + second["size_bytes"] == sum(parts)
    assert first["in_cluster"] is first["only_remote_records"] is first["problem"] is None
    code, said, _ = status(*place, "trips")
    lines = said.splitlines()
    assert code == 0
    assert lines[0].split() == ["TOPIC", "PARTITION", "START", "END", "SEGMENTS", "SIZE"]
    assert lines[1].split()[:5] == ["trips", "0", "0", "120", "2"]
    assert lines[3].startswith("3 segments, ")
    assert status(*place, "other")[::2] == (
        1,
        f"ottla tier: other is no tiered topic, and file://{remote} has no objects of it\n",
    )
    (remote / NAMES.manifest(1)).write_bytes(b"nonsense")
    code, said, errors = status(*place)
    assert (code, said.splitlines()[2].split()) == (1, ["trips", "1", "-", "-", "-", "-"])
    assert errors.startswith("ottla tier: trips-1: the manifest of partition 1 is too short, or none: see `ottla fsck")


@pytest.fixture
def broker(remote: Path, tmp_path: Path) -> Iterator[Broker]:
    config = {"remote.log.manager.task.interval.ms": "50", "ottla.remote.url": f"file://{remote}"}
    config["ottla.checkpoint.bytes"] = "1048576"
    with Broker(config=config, data_dir=tmp_path / "data") as found:
        yield found


def test_a_broker_says_where_it_is_and_what_is_on_its_disk(
    broker: Broker, remote: Path, status: Status, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["-b", broker.bootstrap]
    for topic, settings in (("trips", SETTINGS), ("new", SETTINGS), ("plain", {})):
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        assert main(["topic", "create", topic, *given, *at]) == 0
    capsys.readouterr()
    assert status("plain", *at)[::2] == (
        1,
        f"ottla tier: plain is no tiered topic, and file://{remote} has no objects of it\n",
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.size": 50_000})
    for _ in range(RECORDS):
        producer.produce("trips", VALUE)
        producer.poll(0)
    producer.flush(60)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        new, trips = found = status.json(*at)
        assert main(["log-dirs", "trips", "--json", *at]) == 0
        (folder,) = json.loads(capsys.readouterr().out)
        # A segment that is copied between two answers would make them tell of different moments.
        is_copied = trips["only_remote_records"] == trips["end_offset"] > RECORDS // 4
        if is_copied and found == status.json(*at):
            break
        assert time.monotonic() < deadline, trips
        time.sleep(0.05)
    assert (new["topic"], new["segments"], new["in_cluster"], new["not_copied_records"]) == ("new", 0, True, 0)
    assert (trips["topic"], trips["log_start_offset"], trips["in_cluster"]) == ("trips", 0, True)
    assert trips["local_log_start_offset"] == trips["end_offset"]
    assert trips["only_remote_bytes"] == trips["size_bytes"] > len(VALUE) * trips["end_offset"]
    assert trips["not_copied_records"] == RECORDS - trips["end_offset"]
    # What is on the disk is all that others count.
    assert 1 <= folder["topics"]["trips"]["0"] / (len(VALUE) * trips["not_copied_records"]) < 1.1
    # What a broker does not know is what a topic before has left.
    trio.run(copy_to, remote)
    (remote / "cluster").rename(remote / "other")
    left = next((remote / "other" / "topics").iterdir())
    left.rename(remote / trips["cluster_id"] / "topics" / left.name)
    code, said, _ = status(*at)
    lines = said.splitlines()
    assert code == 0
    assert lines[0].split()[-7:] == ["LOCAL", "START", "ONLY", "REMOTE", "SIZE", "NOT", "COPIED"]
    assert [line.split()[0] for line in lines[1:5]] == ["new", "trips", "trips", "trips"]
    assert lines[5].startswith(f"the cluster shows no topic trips with the id {NAMES.topic_id}: ")
    assert main(["fsck", "--remote", "--remote-url", f"file://{remote}", "--read-all"]) == 0


def test_a_cluster_without_an_object_store_tells_of_none(remote: Path, status: Status) -> None:
    with Broker() as broker:
        at = ["-b", broker.bootstrap]
        code, said, errors = status(*at)
        assert (code, said) == (1, "")
        assert errors == (
            "ottla tier: ottla.remote.url is not set: name the object store with --remote-url or --config\n"
        )
        # Nobody has said that the cluster's objects are there, and none are.
        assert status.json(*at, "--remote-url", f"file://{remote}") == []
    assert "--cluster-id is for --offline" in status("--cluster-id", "cluster")[2]
