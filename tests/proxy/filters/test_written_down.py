"""The filters that write down what they see: audit and recorder."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.records.decode import run as decode
from ottla.client.recording import parse_recording
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.kproto.messages.topics.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.kproto.messages.topics.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.proxy.errors import ProxyError
from ottla.proxy.filters.catalog import make_filters
from ottla.proxy.filters.filter import Filter
from ottla.testing import run_filter
from tests.proxy.filters.batches import Leader, batch, produce

DELETE = DeleteTopicsRequest(topics=[DeleteTopicState(name="a"), DeleteTopicState(name="b")])


def made(kind: str, file: Path, **options: Any) -> Filter:
    return make_filters([{"type": kind, "file": str(file), **options}])[0].filter


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_request_and_its_answer_are_written_down(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"

    def upstream(request: Any) -> DeleteTopicsResponse:
        assert len(lines(file)) == 1  # before it goes on
        refused = DeletableTopicResult(name="b", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="a"), refused])

    run_filter(made("audit", file), DELETE, upstream, principal="User:alice", peer="10.0.0.1:7")
    asked, answered = lines(file)
    assert {name: asked[name] for name in ("event", "principal", "client", "client_id", "listener", "api")} == {
        "event": "request",
        "principal": "User:alice",
        "client": "10.0.0.1:7",
        "client_id": "test",
        "listener": "bootstrap",
        "api": "DeleteTopics",
    }
    assert asked["names"] == {"name": ["a", "b"]}
    assert asked["time"].endswith("Z")
    assert answered["id"] == asked["id"]
    assert (answered["event"], answered["errors"]) == ("answer", ["UNKNOWN_TOPIC_OR_PARTITION"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_error_of_a_newer_broker_is_written_down_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    refused = DeletableTopicResult(name="a", error_code=9999)
    run_filter(made("audit", file), DELETE, lambda request: DeleteTopicsResponse(responses=[refused]))
    assert lines(file)[1]["errors"] == ["error 9999"]


def test_what_is_refused_behind_it_is_written_down_and_secrets_are_not(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    tables = [
        {"type": "audit", "file": str(file)},
        {"type": "limits", "refused-apis": ["AlterUserScramCredentials"]},
    ]
    upsertion = ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=b"SALT", salted_password=b"PASSWORD"
    )
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    run_filter([it.filter for it in make_filters(tables)], request)
    asked, answered = lines(file)
    assert asked["names"] == {"name": ["bob"]}
    assert answered["errors"] == ["POLICY_VIOLATION"]
    assert "PASSWORD" not in file.read_text()


def test_only_what_was_chosen_is_written_down_also_after_a_rotation(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    one = made("audit", file, apis=["Produce"])
    run_filter(one, DELETE)
    assert lines(file) == []
    file.rename(tmp_path / "audit.jsonl.1")
    run_filter(one, produce(batch(b"value"), acks=0), Leader(), version=12)
    assert lines(file)[0]["names"] == {"name": ["t"]}
    assert "value" not in file.read_text()


def test_what_cannot_be_written_down_is_not_done(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    one = made("audit", folder / "audit.jsonl")
    (folder / "audit.jsonl").unlink()
    folder.rmdir()
    answer: Any = run_filter(one, DELETE, lambda request: 1 / 0)  # type: ignore[arg-type,return-value]
    assert {it.error_code for it in answer.responses} == {ErrorCode.UNKNOWN_SERVER_ERROR}


def metadata(**partitions: int) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name=name, partitions=[MetadataResponsePartition(partition_index=index) for index in range(count)]
            )
            for name, count in partitions.items()
        ]
    )


def test_what_is_produced_is_recorded_for_replay_and_decode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "orders.recording"
    one = made("recorder", file, topics="orders.*")
    run_filter(one, MetadataRequest(topics=None), lambda request: metadata(orders=3, other=2))
    for topic in ("orders", "other", "orders-2"):
        run_filter(one, produce(batch(b"a", None), topic=topic), Leader())
    # A proxy that is started again goes on in the same file.
    run_filter(made("recorder", file), produce(batch(b"\xff\n"), topic="orders"), Leader())
    with file.open("rb") as opened:
        recording = parse_recording(opened)
        assert recording.topics == {"orders": 3}
        entries = list(recording.entries)
    assert recording.topics == {"orders": 1, "orders-2": 1}
    assert [(it.topic, it.partition, it.record.key, it.record.value) for it in entries] == [
        ("orders", 0, b"k", b"a"),
        ("orders", 0, b"k", None),
        ("orders-2", 0, b"k", b"a"),
        ("orders-2", 0, b"k", None),
        ("orders", 0, b"k", b"\xff\n"),
    ]
    assert entries[0].record.headers == (("h", b"1"),)

    class Arguments:
        input = str(file)
        json = False

    assert decode(Arguments()) == 0  # type: ignore[arg-type]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "1970-01-01T00:00:00.005+00:00 orders-0: k = a h=1"
    assert shown[-1] == "1970-01-01T00:00:00.005+00:00 orders-0: k = 0xff0a h=1"


def test_a_recording_ends_at_its_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    file = tmp_path / "r"
    one = made("recorder", file, **{"max-size-mib": 1})
    for _ in range(3):
        answer: Any = run_filter(one, produce(batch(b"x" * 600_000)), Leader())
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert len(lines(file)) == 2
    assert caplog.text.count("has its full size") == 1


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"type": "audit"}, "the option 'file' is missing"),
        ({"type": "audit", "file": "/none/a"}, "/none/a cannot be written: No such file or directory"),
        ({"type": "audit", "file": "a", "apis": ["SaslHandshake"]}, "are not shown to filters"),
        ({"type": "audit", "file": "a", "apis": "Produce"}, "apis: write a list"),
        ({"type": "recorder", "file": "a", "max-size-mib": 0}, "max-size-mib: 0 is not a whole number above 0"),
        ({"type": "recorder", "file": "text"}, "text exists, and is not a recording"),
    ],
)
def test_what_their_tables_may_not_say(
    table: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("text")
    with pytest.raises(ProxyError) as raised:
        make_filters([table])
    assert sentence in str(raised.value)
