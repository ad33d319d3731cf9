"""`ottla topic`."""

import json
from argparse import Namespace
from typing import Any

import pytest

from ottla.cli import CommandError
from ottla.cli.connection import connected
from ottla.client.errors import UnreachableError


def topics(broker: Any) -> dict[str, Any]:
    listed = json.loads(broker.run("topic", "list", "--json").stdout)
    return {topic["name"]: topic for topic in listed}


def test_create_list_describe_alter_delete(broker: Any) -> None:
    broker.run("topic", "create", "flights", "planes", "-p", "3", "-c", "retention.ms=1000")
    assert {name: len(topic["partitions"]) for name, topic in topics(broker).items()} == {"flights": 3, "planes": 3}

    broker.run(
        "topic", "alter", "flights", "-p", "5", "-c", "max.message.bytes=2000", "--delete-config", "retention.ms"
    )
    (described,) = json.loads(broker.run("topic", "describe", "flights", "--json").stdout)
    assert described["configs"] == {"max.message.bytes": "2000"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2, 3, 4]
    assert {p["leader"] for p in described["partitions"]} == {1}

    text = broker.run("topic", "describe", "planes").stdout.decode()
    assert "retention.ms=1000" in text
    assert "PARTITION" in text
    broker.run("topic", "delete", "planes")
    assert set(topics(broker)) == {"flights"}


def test_internal_topics_are_listed_when_asked_for(broker: Any) -> None:
    broker.run("topic", "create", "t")
    table = broker.run("topic", "list").stdout.decode().splitlines()
    assert [line.split() for line in table] == [["TOPIC", "PARTITIONS", "REPLICAS"], ["t", "1", "1"]]


def test_failures_say_what_to_do(broker: Any) -> None:
    broker.run("topic", "create", "t")
    for arguments, words in [
        (["create", "t"], "already exists"),
        (["create", "a/b"], "a/b"),
        (["create", "u", "-c", "retention.mss=1"], "Did you mean retention.ms?"),
        (["alter", "t", "-c", "cleanup.polcy=compact"], "Did you mean cleanup.policy?"),
        (["describe", "none"], "ottla topic create none"),
        (["delete", "none"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["alter", "t"], "--partitions"),
        (["alter", "t", "-p", "1"], "INVALID_PARTITIONS"),
    ]:
        done = broker.run("topic", *arguments, check=False)
        assert done.returncode == 1, arguments
        assert done.stderr.startswith(b"ottla topic: ")
        assert words in done.stderr.decode()
    broker.run("topic", "create", "t", "--if-not-exists")
    broker.run("topic", "delete", "none", "--if-exists")


def test_describe_says_how_much_there_is_and_who_lags(broker: Any) -> None:
    broker.run("topic", "create", "t", "-p", "2")
    broker.run("produce", "t", "-p", "1", stdin=b"one\ntwo\nthree\n")
    broker.run("consume", "t", "--group", "readers", "-c", "1")
    broker.run("topic", "delete-records", "t:1", "--before", "1")
    (described,) = json.loads(broker.run("topic", "describe", "t", "--json").stdout)
    zero, one = described["partitions"]
    assert (zero["start_offset"], zero["end_offset"]) == (0, 0)
    assert (one["start_offset"], one["end_offset"]) == (1, 3)
    assert one["size_bytes"] > zero["size_bytes"] == 0
    assert described["lag"] == {"readers": 2}
    lines = [line.split() for line in broker.run("topic", "describe", "t").stdout.decode().splitlines()]
    assert lines[1][:5] == ["PARTITION", "START", "END", "RECORDS", "SIZE"]
    assert lines[3][:4] == ["1", "1", "3", "2"]
    assert lines[-1] == ["readers", "2"]


def test_the_oldest_records_are_deleted(broker: Any) -> None:
    broker.run("topic", "create", "t", "-p", "2")
    for partition in ("0", "1"):
        broker.run("produce", "t", "-p", partition, stdin=b"one\ntwo\nthree\n")
    delete = ("topic", "delete-records")
    planned = json.loads(broker.run(*delete, "t", "--before", "-1", "--dry-run", "--json").stdout)
    assert [(it["partition"], it["from"], it["to"]) for it in planned] == [(0, 0, 2), (1, 0, 2)]
    assert len(broker.run("consume", "t").stdout.split()) == 6
    broker.run(*delete, "t:1", "--before", "2")
    assert broker.run("consume", "t", "-p", "1").stdout == b"three\n"
    broker.run(*delete, "t:0", "--before", "-1h")  # nothing is that old
    assert len(broker.run("consume", "t", "-p", "0").stdout.split()) == 3
    rows = broker.run(*delete, "t", "--before", "end").stdout.decode().splitlines()
    assert [row.split()[1:] for row in rows[1:]] == [["0", "0", "3", "3"], ["1", "2", "3", "1"]]
    assert broker.run("consume", "t").stdout == b""
    done = broker.run(*delete, "t:9", "--before", "end", check=False)
    assert (done.returncode, done.stderr) == (1, b"ottla topic: topic t has partitions 0 to 1\n")


def test_settings_take_units(broker: Any) -> None:
    broker.run("topic", "create", "t", "-c", "retention.ms=7d", "-c", "segment.bytes=100MiB")
    (described,) = json.loads(broker.run("topic", "describe", "t", "--json").stdout)
    assert described["configs"] == {"retention.ms": "604800000", "segment.bytes": "104857600"}
    done = broker.run("topic", "alter", "t", "-c", "retention.ms=7MB", check=False)
    assert done.returncode == 2
    assert b"retention.ms is a time" in done.stderr


def test_no_broker_is_said(broker: Any) -> None:
    done = broker.run("topic", "list", "-b", "127.0.0.1:1", check=False)
    assert done.returncode == 1
    assert b"is it running?" in done.stderr


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("127.0.0.1:9092", ": is it running? Name another with --bootstrap host:port"),
        (
            "vm:9092",
            ", where the cluster says that one is: if that address is wrong, start it with --advertise",
        ),
    ],
)
def test_it_matters_who_named_the_address_at_which_no_broker_answers(address: str, advice: str) -> None:
    arguments = Namespace(bootstrap="127.0.0.1:9092", command_config=None, timeout=1)
    with pytest.raises(CommandError) as raised, connected(arguments):
        raise UnreachableError(address, "unknown")
    assert str(raised.value) == f"no broker answers at {address} (unknown){advice}"


def test_wrong_usage_is_exit_code_2(broker: Any) -> None:
    assert broker.run("topic", check=False).returncode == 2
    assert broker.run(check=False).returncode == 2
    assert broker.run("nonsense", check=False).returncode == 2
    assert broker.run("topic", "create", "t", "-c", "novalue", check=False).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("topic create t -p 0", "'0' is too few: write 1 or more"),
        ("topic create t -r many", "'many' is not a whole number"),
        ("consume t -p x", "'x' is not a whole number"),
        ("consume t -c -1", "'-1' is too few: write 1 or more"),
        ("produce t -c 0", "'0' is too few: write 1 or more"),
        ("topic list --timeout soon", "'soon' is not a time: write a number of seconds, such as 30 or 0.5"),
        ("topic list --timeout -1", "'-1' is not a time"),
        ("topic list --timeout inf", "'inf' is not a time"),
        ("cluster drain one", "'one' is not a whole number"),
    ],
)
def test_a_number_that_cannot_be_is_wrong_usage(broker: Any, arguments: str, words: str) -> None:
    result = broker.run(*arguments.split(), check=False)
    assert result.returncode == 2
    assert words in result.stderr.decode()
