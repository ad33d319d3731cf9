"""`ottla produce` and `ottla consume`: what goes in comes out, in every format."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from ottla.cli.connection import bootstrap_servers
from ottla.client.errors import AddressError
from ottla.kproto.partitioner import murmur2, partition_for_key


def test_lines_in_lines_out(broker: Any) -> None:
    broker.run("produce", "t", stdin=b"one\ntwo\n\nlast without newline")
    assert broker.run("consume", "t").stdout == b"one\ntwo\n\nlast without newline\n"


def test_keys_headers_and_the_format(broker: Any) -> None:
    broker.run("topic", "create", "t", "-p", "2")
    broker.run("produce", "t", "-K", ":", "-H", "a=1", "-H", "b=2", "-p", "1", stdin=b"k:v\nplain\n")
    out = broker.run("consume", "t", "-f", r"%t|%p|%o|%k|%s|%K|%S|%h|%%\x21\n").stdout
    assert out == b"t|1|0|k|v|1|1|a=1,b=2|%!\nt|1|1||plain|-1|5|a=1,b=2|%!\n"
    assert broker.run("consume", "t", "-K", "=").stdout == b"k=v\n=plain\n"


def test_json(broker: Any) -> None:
    broker.run("produce", "t", "-K", ":", "-Z", "-H", "h=x", stdin="schlüssel:\n:wert\n".encode())
    first, second = map(json.loads, broker.run("consume", "t", "-J").stdout.splitlines())
    assert (first["key"], first["payload"], first["headers"]) == ("schlüssel", None, ["h", "x"])
    assert (second["key"], second["payload"], second["offset"]) == (None, "wert", 1)
    assert first["ts"] > 1_600_000_000_000
    assert first["tstype"] == "create"


def test_offsets(broker: Any) -> None:
    broker.run("produce", "t", stdin=b"".join(b"%d\n" % i for i in range(10)))

    def read(*arguments: str) -> list[int]:
        return [int(line) for line in broker.run("consume", "t", *arguments).stdout.split()]

    assert read("-o", "beginning", "-c", "2") == [0, 1]
    assert read("-o", "7") == [7, 8, 9]
    assert read("-o", "-2") == [8, 9]
    assert read("-o", "-50") == list(range(10))
    assert read("-o", "end") == []
    assert read("-o", "3", "--until", "5") == [3, 4]
    assert read("-o", "s@0") == list(range(10))
    assert read("-o", "s@99999999999999") == []
    timestamps = broker.run("consume", "t", "-f", r"%T\n").stdout.split()
    assert read("-o", f"s@{timestamps[0].decode()}")[0] == 0


def test_follow_waits_for_new_records(broker: Any) -> None:
    broker.run("produce", "t", stdin=b"before\n")
    command = [sys.executable, "-m", "ottla.cli", "consume", "t", "--follow", "-u", "-c", "2"]
    reader = subprocess.Popen([*command, "-b", broker.address], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"before\n"
    broker.run("produce", "t", stdin=b"after\n")
    assert reader.stdout.readline() == b"after\n"
    assert reader.wait(120) == 0
    reader.stdout.close()


def test_what_was_typed_is_sent_when_the_input_pauses(broker: Any) -> None:
    broker.run("topic", "create", "t")
    command = [sys.executable, "-m", "ottla.cli", "produce", "t", "-b", broker.address]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE)
    reader = subprocess.Popen([*command[:3], "consume", *command[4:], "--follow", "-c", "2"], stdout=subprocess.PIPE)
    assert writer.stdin is not None
    assert reader.stdout is not None
    writer.stdin.write(b"first\nsecond\nunfinished")
    writer.stdin.flush()
    assert reader.stdout.read() == b"first\nsecond\n"
    writer.stdin.close()
    reader.stdout.close()
    assert (writer.wait(120), reader.wait(120)) == (0, 0)
    assert broker.run("consume", "t").stdout == b"first\nsecond\nunfinished\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(broker: Any, codec: str) -> None:
    lines = b"".join(b"%d %s\n" % (i, b"x" * 100) for i in range(2_000))
    broker.run("produce", "t", "-z", codec, stdin=lines)
    assert broker.run("consume", "t").stdout == lines


def test_files_and_delimiters(broker: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1;2;3")
    (tmp_path / "b").write_bytes(b"4\n5")
    broker.run("produce", "t", str(tmp_path / "a"), str(tmp_path / "b"), "-D", ";")
    assert broker.run("consume", "t", "-D", "|").stdout == b"1|2|3|4\n5|"
    broker.run("produce", "u", "--whole-files", str(tmp_path / "a"), str(tmp_path / "b"), "-k", "key")
    assert broker.run("consume", "u", "-f", "%k=%s,").stdout == b"key=1;2;3,key=4\n5,"


def test_more_records_than_one_batch_holds_go_to_all_partitions(broker: Any) -> None:
    broker.run("topic", "create", "t", "-p", "3")
    broker.run("produce", "t", stdin=b"".join(b"%d\n" % i for i in range(40_000)))
    lines = broker.run("consume", "t", "-f", r"%p %s\n").stdout.splitlines()
    assert {line.split()[0] for line in lines} == {b"0", b"1", b"2"}
    assert sorted(int(line.split()[1]) for line in lines) == list(range(40_000))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "none"], "ottla topic create none"),
        (["consume", "t", "-o", "somewhere"], "is not a place in a log"),
        (["consume", "t", "-f", "%q"], "%q"),
        (["consume", "t", "-p", "7"], "partitions 0 to 0"),
        (["produce", "t", "-p", "7"], "partitions 0 to 0"),
        (["produce", "t", "/nonexistent"], "/nonexistent"),
        (["consume", "t", "-b", "a:b:c"], "is not an address"),
    ],
)
def test_failures_say_what_to_do(broker: Any, arguments: list[str], words: str) -> None:
    broker.run("topic", "create", "t")
    done = broker.run(*arguments, check=False)
    assert done.returncode == 1
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_variable_that_is_not_an_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "127.0.0.1:")
    with pytest.raises(AddressError, match=r"^OTTLA_BOOTSTRAP: '127\.0\.0\.1:' is not an address: write host:port$"):
        bootstrap_servers(None)
    with pytest.raises(AddressError, match=r"^'a:b:c' is not an address"):
        bootstrap_servers("a:b:c")
    assert bootstrap_servers("a:1") == [("a", 1)]


def test_a_too_large_record_is_refused(broker: Any) -> None:
    done = broker.run("produce", "t", stdin=b"x" * 2_000_000, check=False)
    assert done.returncode == 1
    assert b"MESSAGE_TOO_LARGE" in done.stderr


def test_keys_go_where_the_java_client_puts_them() -> None:
    """Values of org.apache.kafka.common.utils.Utils.murmur2, as its own tests state them."""
    expected = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, value in expected.items():
        assert murmur2(key) == value & 0xFFFFFFFF
    assert all(0 <= partition_for_key(b"%d" % i, 7) < 7 for i in range(100))


def test_json_keeps_what_is_not_text(broker: Any, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    broker.run("produce", "t", "--whole-files", str(tmp_path / "binary"))
    (line,) = broker.run("consume", "t", "-J").stdout.splitlines()
    assert json.loads(line)["payload"] == {"base64": "/wA="}


def test_times_as_people_write_them(broker: Any) -> None:
    broker.run("produce", "t", stdin=b"one\ntwo\n")

    def read(*arguments: str) -> list[bytes]:
        out: bytes = broker.run("consume", "t", *arguments).stdout
        return out.split()

    assert read("-o", "-1h") == read("-o", "-1.5d") == read("--offset=-1w") == [b"one", b"two"]
    assert read("-o", "-1") == [b"two"]
    assert read("-o", "2020-01-31") == read("-o", "2020-01-31T12:00:00Z") == [b"one", b"two"]
    assert read("-o", "2999-01-31T12:00:00+02:00") == []
    assert read("--until", "-1h") == []
    done = broker.run("consume", "t", "-o", "yesterday", check=False)
    assert done.returncode == 1
    assert b"'yesterday' is not a place in a log: write beginning" in done.stderr


def test_a_group_goes_on_where_it_has_got_to(broker: Any) -> None:
    broker.run("topic", "create", "t", "-p", "2")
    broker.run("produce", "t", "-p", "0", stdin=b"one\ntwo\nthree\n")
    read = ("consume", "t", "--group", "readers")
    assert broker.run(*read, "-c", "2").stdout == b"one\ntwo\n"
    assert broker.run(*read).stdout == b"three\n"
    assert broker.run(*read).stdout == b""
    broker.run("produce", "t", "-p", "1", stdin=b"four\n")
    (group,) = json.loads(broker.run("group", "describe", "readers", "--json").stdout)
    assert [(it["partition"], it["offset"], it["lag"]) for it in group["offsets"]] == [(0, 3, 0), (1, 0, 1)]
    assert broker.run(*read).stdout == b"four\n"
    assert broker.run("consume", "t", "--group", "others", "-o", "end").stdout == b""
    assert broker.run("consume", "t").stdout.split() == [b"one", b"two", b"three", b"four"]


def test_only_what_is_asked_for_is_printed(broker: Any) -> None:
    records = b'k1:{"n": 1, "to": {"country": "CZ"}}\nk2:{"n": 2}\nk1:no JSON\nk3:[1]\n'
    broker.run("produce", "t", "-K", ":", "-H", "trace=a=b", stdin=records)
    broker.run("produce", "t", "-H", "other=1", stdin=b"plain\n")

    def read(*flags: str) -> list[bytes]:
        return list(broker.run("consume", "t", *flags).stdout.splitlines())

    assert len(read()) == 5
    assert read("--key", "k1") == [b'{"n": 1, "to": {"country": "CZ"}}', b"no JSON"]
    assert len(read("--header", "trace")) == 4
    assert len(read("--header", "trace=a=b")) == 4
    assert read("--header", "trace=a") == []
    assert read("--header", "other") == [b"plain"]
    assert read("--where", '$.to.country == "CZ"') == [b'{"n": 1, "to": {"country": "CZ"}}']
    assert read("--where", "$.n > 1", "--key", "k2") == [b'{"n": 2}']
    assert read("--where", "n > 1", "--where", "n < 2") == []
    assert len(read("--where", "$.n", "-c", "1")) == 1
    # What a filter passes over counts as read.
    assert read("--key", "k3", "--group", "readers") == [b"[1]"]
    assert read("--group", "readers") == []
    wrong = broker.run("consume", "t", "--where", "$.n >", check=False)
    assert (wrong.returncode, wrong.stderr.splitlines()[-1]) == (
        2,
        b"ottla consume: error: argument --where: Nothing follows >.",
    )


def test_without_pythons_buffer_records_are_printed_together(broker: Any) -> None:
    numbers = b"".join(b"%d\n" % number for number in range(5000))
    broker.run("produce", "t", stdin=numbers)
    # Each write of the command is a message of its own.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-u", "-m", "ottla.cli", "consume", "t", "-b", broker.address]
    with ours, subprocess.Popen(command, stdout=theirs.fileno()) as process:
        theirs.close()
        messages = list(iter(lambda: ours.recv(1 << 20), b""))
    assert process.returncode == 0
    assert b"".join(messages) == numbers
    assert len(messages) < 20


def test_a_group_does_not_commit_what_nobody_took(broker: Any) -> None:
    """The reader of the pipe is gone before anything is printed."""
    broker.run("produce", "t", stdin=b"one\n")
    gone, ours = os.pipe()
    os.close(gone)
    command = [sys.executable, "-m", "ottla.cli", "consume", "t", "--group", "readers", "-b", broker.address]
    done = subprocess.run(command, stdout=ours, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")
    assert broker.run("consume", "t", "--group", "readers").stdout == b"one\n"


def test_a_group_with_members_is_refused(broker: Any) -> None:
    broker.run("produce", "t", stdin=b"one\n")
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert consumer.poll(20) is not None
    done = broker.run("consume", "t", "--group", "readers", check=False)
    consumer.close()
    assert done.returncode == 1
    assert b"group readers has members: stop its consumers first" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["consume", "t"], ["topic", "list"], ["consume", "--help"], ["--help"], ["dump", "data"]]
)
def test_a_reader_who_has_enough_is_no_error(broker: Any, arguments: list[str], tmp_path: Path) -> None:
    broker.run("produce", "t", stdin=b"x" * 1000 + b"\n")
    arguments = [str(tmp_path / "data") if word == "data" else word for word in arguments]
    gone, ours = os.pipe()
    os.close(gone)
    environment = {"OTTLA_BOOTSTRAP": broker.address, "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "ottla.cli", *arguments]
    done = subprocess.run(command, stdout=ours, stderr=subprocess.PIPE, env=environment, check=False, timeout=60)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_formats_are_explained_to_people(broker: Any) -> None:
    text = broker.run("consume", "--help-format").stdout.decode()
    assert "  %t  topic  " in text
    assert "Compile" not in text
