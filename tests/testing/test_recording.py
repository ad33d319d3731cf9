"""Recordings: what is recorded is what is replayed."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli import main
from ottla.client.recording import parse_recording, write_recording
from ottla.client.topic_reader import Entry, Transaction
from ottla.kproto.records import Record as KafkaRecord
from ottla.kproto.records import TimestampType
from ottla.testing import Broker, Record

content = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
records = st.builds(
    KafkaRecord,
    offset=st.integers(0, 2**62),
    timestamp_ms=st.integers(-1, 2**53),
    key=content,
    value=content,
    headers=st.lists(st.tuples(st.text(max_size=10), content), max_size=3).map(tuple),
)
entries = st.builds(
    Entry,
    topic=st.sampled_from(["a", "b"]),
    partition=st.integers(0, 9),
    record=records,
    timestamp_type=st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
    transaction=st.none() | st.builds(Transaction, st.integers(0, 99), st.integers(0, 9)),
    is_commit=st.none(),
)


@given(written=st.lists(entries, max_size=10))
def test_every_recording_is_read_as_it_was_written(written: list[Entry]) -> None:
    file = io.BytesIO()
    assert write_recording(file, {"a": 10, "b": 3}, written) == len(written)
    file.seek(0)
    recording = parse_recording(file)
    assert recording.topics == {"a": 10, "b": 3}
    assert list(recording.entries) == written


def run(broker: Broker, *words: str) -> int:
    command, *rest = words
    return main([command, "--bootstrap", broker.bootstrap, *rest])


def fill(broker: Broker) -> None:
    broker.create_topic("a", partitions=3)
    broker.create_topic("b")
    for number in range(20):
        broker.produce("a", {"n": number}, key=f"k{number}", timestamp_ms=1000 + number, headers={"n": str(number)})
    broker.produce("b", b"\xff\x00", None, timestamp_ms=1005)


def contents(broker: Broker) -> dict[str, list[Record]]:
    return {topic: broker.records(topic) for topic in broker.topics()}


def test_all_topics_are_recorded_by_time_and_replayed(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    before = contents(broker)
    path = tmp_path / "all.jsonl"

    assert run(broker, "record", "--all", str(path)) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"ottla_recording": 1, "topics": {"a": 3, "b": 1}}
    assert [line["timestamp"] for line in lines[1:]] == sorted(line["timestamp"] for line in lines[1:])

    broker.reset()
    assert run(broker, "replay", str(path), "--speed", "max") == 0
    assert contents(broker) == before

    broker.reset()
    assert broker.load(path) == 22
    assert contents(broker) == before


def test_a_topic_is_replayed_into_another_with_new_times(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    path = tmp_path / "a.jsonl"
    assert run(broker, "record", "a", str(path)) == 0
    began_ms = broker.clock.time_ms()

    assert run(broker, "replay", str(path), "--speed", "max", "--topic", "a=copy", "--now") == 0

    copied = broker.records("copy")
    assert sorted((r.partition, r.value) for r in copied) == sorted((r.partition, r.value) for r in broker.records("a"))
    assert min(record.timestamp_ms for record in copied) >= began_ms


def test_the_timing_of_a_recording_is_kept_or_made_faster(broker: Broker, tmp_path: Path) -> None:
    broker.produce("t", "first", timestamp_ms=1_000_000)
    broker.produce("t", "second", timestamp_ms=1_001_000)
    path = tmp_path / "t.jsonl"
    assert run(broker, "record", "t", str(path)) == 0
    broker.reset()

    began = time.monotonic()
    assert run(broker, "replay", str(path), "--speed", "10", "--now") == 0

    first, second = broker.records("t")
    assert time.monotonic() - began >= 0.1
    assert second.timestamp_ms - first.timestamp_ms >= 90


def test_a_recording_leaves_out_what_was_not_committed_unless_it_is_asked_for(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("t")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
    producer.init_transactions(30)
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce("t", value)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    broker.wait_for("t", 1)  # The end of a transaction is answered before its marker is written.
    committed, everything = tmp_path / "committed.jsonl", tmp_path / "everything.jsonl"

    assert run(broker, "record", "t", str(committed)) == 0
    assert run(broker, "record", "t", str(everything), "--uncommitted") == 0

    lines = [json.loads(line) for line in everything.read_text().splitlines()[1:]]
    assert [(line.get("value"), line.get("marker")) for line in lines] == [
        ("aborted", None),
        (None, "abort"),
        ("committed", None),
        (None, "commit"),
    ]
    assert all(len(line["transaction"]) == 2 for line in lines)
    assert [json.loads(line)["value"] for line in committed.read_text().splitlines()[1:]] == ["committed"]

    broker.reset()
    assert run(broker, "replay", str(everything), "--speed", "max") == 0
    assert [record.text for record in broker.records("t")] == ["aborted", "committed"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["record", "out"], "name topics or give --all"),
        (["record", "--all", "t", "out"], "not both"),
        (["record", "absent", "out"], "no topic 'absent'"),
        (["record", "--all", "/nowhere/out"], "cannot write"),
        (["replay", "/nowhere/in"], "cannot read"),
    ],
)
def test_what_cannot_be_done_is_said(
    broker: Broker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(broker, *words) == 1
    assert why in capsys.readouterr().err


def test_a_file_that_is_no_recording_is_refused(
    broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_text("hello\n")
    assert run(broker, "replay", str(path)) == 1
    assert "line 1 is not JSON" in capsys.readouterr().err
