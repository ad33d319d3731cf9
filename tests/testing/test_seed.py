"""Records out of files, in every format."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from ottla.testing.seed import SeedError, read_seed


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def plain(records: Any) -> list[tuple[Any, ...]]:
    return [(record.topic, record.partition, record.key, record.value, record.headers) for record in records]


def test_json_lines_are_records_or_values(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "orders.jsonl",
        '{"value": "text", "key": "k", "headers": {"h": "v"}, "partition": 1, "timestamp": 5}\n'
        '{"topic": "other", "value": {"a": 1}, "key": null}\n'
        "\n"
        '{"id": 7, "value": 3}\n'
        "[1]\n",
    )
    records = read_seed(path, None, now_ms=9).records
    assert plain(records) == [
        ("orders", 1, b"k", b"text", (("h", b"v"),)),
        ("other", -1, None, b'{"a":1}', ()),
        ("orders", -1, None, b'{"id":7,"value":3}', ()),
        ("orders", -1, None, b"[1]", ()),
    ]
    assert [record.timestamp_ms for record in records] == [5, 7, 8, 9]


def test_what_kcat_prints_as_json(tmp_path: Path) -> None:
    line = (
        '{"topic":"t","partition":2,"offset":9,"tstype":"create","ts":5,"broker":0,'
        '"headers":["h","v","h","w"],"key":"k","payload":"p"}\n'
    )
    (record,) = read_seed(write(tmp_path, "a.jsonl", line), None, now_ms=9).records
    assert plain([record]) == [("t", 2, b"k", b"p", (("h", b"v"), ("h", b"w")))]
    assert record.timestamp_ms == 5


def test_lines_as_kcat_takes_them(tmp_path: Path) -> None:
    path = write(tmp_path, "t.txt", b"k1:v1\nno key\n\xff:\n")
    assert plain(read_seed(path, None, now_ms=0, key_delimiter=":").records) == [
        ("t", -1, b"k1", b"v1", ()),
        ("t", -1, None, b"no key", ()),
        ("t", -1, b"\xff", b"", ()),
    ]
    assert [record.value for record in read_seed(path, "u", now_ms=0).records] == [b"k1:v1", b"no key", b"\xff:"]


def test_rows_of_a_table(tmp_path: Path) -> None:
    rows = write(tmp_path, "orders.csv", "key,id,city\nk,1,Jyväskylä\n")
    assert plain(read_seed(rows, None, now_ms=0).records) == [
        ("orders", -1, b"k", '{"id":"1","city":"Jyväskylä"}'.encode(), ())
    ]
    values = write(tmp_path, "v.csv", 'key,value\nk,"a,b"\n')
    assert plain(read_seed(values, "t", now_ms=0).records) == [("t", -1, b"k", b"a,b", ())]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.jsonl", '{"value": 1}\n{oops\n', "line 2 is not JSON"),
        ("a.csv", "a,b\n1\n", "more or fewer columns"),
        ("a.jsonl", '{"ottla_recording": 99, "topics": {}}\n', "line 1"),
        ("a.jsonl", '{"ottla_recording": 1, "topics": {"t": 1}}\n{"topic": "t"}\n', "line 2"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path: Path, name: str, content: str, why: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(SeedError, match=why):
        read_seed(path, None, now_ms=0)


@pytest.mark.kcat
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_what_kcat_prints_is_loaded_as_it_was(broker: Broker, tmp_path: Path) -> None:
    broker.produce("t", "hällö", None, {"a": 1}, key="k", headers={"h": "v"})
    before = broker.records("t")
    printed = subprocess.run(
        ["kcat", "-C", "-e", "-q", "-J", "-b", broker.bootstrap, "-t", "t"], capture_output=True, check=True, timeout=60
    ).stdout
    broker.reset()
    assert broker.load(write(tmp_path, "t.jsonl", printed)) == 3
    assert broker.records("t") == before


def test_a_broker_loads_a_file(broker: Broker, tmp_path: Path) -> None:
    path = write(tmp_path, "orders.jsonl", '{"id": 1}\n{"id": 2}\n')
    assert broker.load(path) == 2
    assert broker.load(path, topic="again") == 2
    assert [record.json() for record in broker.records("orders")] == [{"id": 1}, {"id": 2}]
    assert len(broker.records("again")) == 2
