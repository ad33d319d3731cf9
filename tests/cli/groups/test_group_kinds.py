"""Share groups and streams groups: what `ottla group` says of them, and the files that keep them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import main
from ottla.client.client import Client
from tests.group_members import ACCEPT, MEMBER, REJECT, RELEASE, ShareMember, StreamsMember

FLAGS = [
    flag
    for setting in (
        "group.share.assignment.interval.ms=0",
        "group.streams.assignment.interval.ms=0",
        "group.streams.initial.rebalance.delay.ms=0",
        "share.coordinator.state.topic.num.partitions=1",
        "offsets.topic.num.partitions=1",
    )
    for flag in ("--set", setting)
]


@pytest.fixture
def busy(broker_class: Any, tmp_path: Path) -> Iterator[Any]:
    """A broker with a share group that has released and accepted records, and a streams group; both have a member."""
    broker = broker_class(tmp_path / "data", "--http", "127.0.0.1:0", *FLAGS)
    broker.run("topic", "create", "flights", "-p", "2")
    broker.run("config", "set", "group", "shared", "share.auto.offset.reset=earliest")
    broker.run("produce", "flights", "-p", "0", stdin=b"a\nb\nc\nd\ne\n")
    with Client([("127.0.0.1", broker.ready["port"])]) as client:
        member = ShareMember(client, "shared", "flights")
        assert member.acquire() == [(0, 4, 1)]
        member.acknowledge(0, 0, ACCEPT)
        member.acknowledge(1, 2, RELEASE)
        assert member.acquire() == [(1, 2, 2)]
        member.acknowledge(1, 1, RELEASE)
        StreamsMember(client, "streaming", "flights").describe_topology("flights")
        yield broker
    if broker.process.poll() is None:
        assert broker.stop() == 0


def contents(recording: Path) -> list[tuple[Any, ...]]:
    """What was recorded, without where it lay; topics by their names before they were copied."""
    lines = list(map(json.loads, recording.read_text().splitlines()[1:]))
    return sorted(
        (line["topic"].removeprefix("c"), line["timestamp"], json.dumps([line["key"], line["value"]])) for line in lines
    )


def described(broker: Any, group: str, *options: str) -> Any:
    (found,) = json.loads(broker.run("group", "describe", group, "--json", *options).stdout)
    return found


def test_what_is_said_of_them(busy: Any) -> None:
    http = ["--http", busy.ready["http"]]
    share, streams = json.loads(busy.run("group", "describe", "shared", "streaming", "--json", *http).stdout)

    assert (share["type"], share["state"], share["epoch"]) == ("share", "Stable", share["target_epoch"])
    first, second = share["offsets"]
    assert (first["offset"], first["end_offset"], first["lag"]) == (1, 5, 4)
    # What the member holds is as it was stored before it got it.
    assert first["deliveries"] == [
        {"first_offset": 1, "last_offset": 1, "state": "available", "delivery_count": 2},
        {"first_offset": 2, "last_offset": 2, "state": "available", "delivery_count": 1},
    ]
    assert (second["lag"], second["deliveries"], second["member"]) == (0, [], MEMBER)
    # Of 1 to 4 it has given back the first.
    assert (first["held"], second["held"], share["members"][0]["held"]) == ({MEMBER: 3}, {}, 3)

    assert (streams["type"], streams["state"], streams["assignor"]) == ("streams", "Stable", "sticky")
    assert (streams["epoch"], streams["topology_epoch"]) == (streams["target_epoch"], 0)
    (member,) = streams["members"]
    assert (member["tasks"], member["epoch"]) == ({"active": {"0": [0, 1]}}, streams["epoch"])
    (part,) = streams["topology"]
    assert (part["sources"], part["changelogs"]) == (["flights"], ["streaming-store-changelog"])
    (wired,) = streams["description"]
    assert (wired["name"], [node["kind"] for node in wired["nodes"]]) == ("0", ["source", "processor"])

    said = busy.run("group", "describe", "shared", "streaming", *http).stdout.decode()
    lines = [line.split() for line in said.splitlines()]
    (of_share,) = [line for line in lines if line[0] == MEMBER and line[-1].startswith("flights")]
    assert of_share[-2:] == ["3", "flights:0,1"]
    assert ["flights", "0", "1", "available", "2"] in lines
    assert [MEMBER, str(member["epoch"]), "-", member["client"], member["host"], "active", "0:0,1"] in lines
    assert "  SUBTOPOLOGY 0\n    source in reads flights\n      processor count with store\n" in said
    assert "topology epoch 0" in " ".join(next(line for line in lines if line[0] == "streaming"))
    lags = json.loads(busy.run("top", "--json", "--interval", "0.01").stdout)["groups"]
    assert (lags["shared"]["lag"], lags["streaming"]["lag"]) == (4, 0)
    listed = [line.split() for line in busy.run("group", "list").stdout.decode().splitlines()]
    assert listed[1:] == [["shared", "share", "Stable", "share"], ["streaming", "streams", "Stable", "streams"]]


def test_where_dead_letters_of_a_share_group_go(broker_class: Any, tmp_path: Path) -> None:
    broker = broker_class(tmp_path / "data", "--http", "127.0.0.1:0", *FLAGS)
    broker.run("topic", "create", "flights", "-p", "2")
    broker.run("topic", "create", "dlq.flights", "-c", "errors.deadletterqueue.group.enable=true")
    settings = ["share.auto.offset.reset=earliest", "errors.deadletterqueue.topic.name=dlq.flights"]
    broker.run("config", "set", "group", "shared", *settings)
    broker.run("produce", "flights", "-p", "0", stdin=b"a\nb\nc\n")
    with Client([("127.0.0.1", broker.ready["port"])]) as client:
        member = ShareMember(client, "shared", "flights")
        assert member.acquire() == [(0, 2, 1)]
        member.acknowledge(0, 1, REJECT)
        letters = broker.run("consume", "dlq.flights", "--follow", "-c", "2").stdout.splitlines()
        assert len(letters) == 2
        http = ["--http", broker.ready["http"]]
        deadline = time.monotonic() + 60
        while (told := described(broker, "shared", *http)["dead_letters"])["written"] != 2:
            assert time.monotonic() < deadline, told
        assert told == {"topic": "dlq.flights", "written": 2}
        assert described(broker, "shared")["dead_letters"] == {"topic": "dlq.flights", "written": None}
        said = broker.run("group", "describe", "shared", *http).stdout.decode()
        assert "  dead letters to dlq.flights, 2 written\n" in said
    assert broker.stop() == 0


def test_the_offsets_of_a_share_group_are_moved(broker_class: Any, tmp_path: Path) -> None:
    broker = broker_class(tmp_path / "data", *FLAGS)
    broker.run("topic", "create", "flights", "-p", "2")
    broker.run("config", "set", "group", "shared", "share.auto.offset.reset=earliest")
    broker.run("produce", "flights", "-p", "0", stdin=b"a\nb\nc\nd\ne\n")
    with Client([("127.0.0.1", broker.ready["port"])]) as client:
        member = ShareMember(client, "shared", "flights")
        assert member.acquire() == [(0, 4, 1)]
        member.acknowledge(0, 3, ACCEPT)
        refused = broker.run("group", "seek", "shared", "--to", "earliest", check=False)
        assert refused.returncode
        assert b"stop its consumers first" in refused.stderr
        member.beat(member_epoch=-1)
    dry = json.loads(broker.run("group", "seek", "shared", "--to", "2", "--dry-run", "--json").stdout)
    assert [(each["partition"], each["from"], each["to"]) for each in dry] == [(0, 4, 2), (1, 0, 0)]
    broker.run("group", "seek", "shared", "--to", "2")
    assert [each["offset"] for each in described(broker, "shared")["offsets"]] == [2, 0]
    with Client([("127.0.0.1", broker.ready["port"])]) as client:
        assert ShareMember(client, "shared", "flights").acquire() == [(2, 4, 1)]
    assert broker.stop() == 0


def test_a_backup_has_them_and_fsck_and_dump_read_them(busy: Any, broker_class: Any, tmp_path: Path) -> None:
    before = described(busy, "shared"), described(busy, "streaming")
    busy.run("backup", "--data-dir", str(tmp_path / "data"), str(tmp_path / "backup"))
    recorded = tmp_path / "internal.jsonl"
    busy.run("record", "__share_group_state", "__consumer_offsets", str(recorded))
    said = busy.run("decode", str(recorded)).stdout.decode()
    assert 'ShareUpdate {"group_id": "shared"' in said
    assert 'StreamsGroupTopology {"group_id": "streaming"}' in said
    # Into other topics it is replayed, byte for byte; into the coordinators' own nobody writes but they.
    again = tmp_path / "again.jsonl"
    where = ["--bootstrap", busy.address]
    renamed = [
        word for name in ("__share_group_state", "__consumer_offsets") for word in ("--topic", f"{name}=c{name}")
    ]
    assert main(["replay", str(recorded), "--speed", "max", *renamed, *where]) == 0
    assert main(["record", "c__share_group_state", "c__consumer_offsets", str(again), *where]) == 0
    assert contents(again) == contents(recorded)
    assert b"INVALID_TOPIC_EXCEPTION" in busy.run("replay", str(recorded), "--speed", "max", check=False).stderr

    busy.run("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "restored"))
    busy.run("fsck", "--data-dir", str(tmp_path / "restored"))
    dumped = busy.run("dump", str(tmp_path / "restored"), "--show", "records", "--json").stdout.decode().splitlines()
    records = [item for item in map(json.loads, dumped) if item["type"] == "record" and "record" in item]
    assert {each["record"] for each in records} >= {
        "ShareSnapshot",
        "ShareUpdate",
        "ShareGroupMetadata",
        "ShareGroupStatePartitionMetadata",
        "ShareGroupCurrentMemberAssignment",
        "StreamsGroupMetadata",
        "StreamsGroupTopology",
        "StreamsGroupCurrentMemberAssignment",
    }
    updates = [each["value"]["state_batches"] for each in records if each["record"] == "ShareUpdate"]
    released = [batch for update in updates for batch in update]
    assert {"first_offset": 1, "last_offset": 1, "delivery_state": 0, "delivery_count": 2} in released

    restored = broker_class(tmp_path / "restored", *FLAGS)
    try:
        assert (described(restored, "shared"), described(restored, "streaming")) == before
    finally:
        assert restored.stop() == 0
