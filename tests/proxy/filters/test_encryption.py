"""The filter that encrypts values: what reaches the broker, what comes back, keys and their services."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from ottla.kproto.errors import ErrorCode
from ottla.kproto.records import Compression, Record, build_batch, iter_records, parse_batch_header
from ottla.proxy.errors import ProxyError
from ottla.proxy.filters.catalog import make_filters
from ottla.proxy.filters.encryption import HEADER
from ottla.proxy.filters.filter import Filter
from ottla.testing import run_filter
from tests.proxy.filters.batches import Leader, batch, produce

FIRST, SECOND = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def write_keys(path: Path, current: str, **keys: str) -> None:
    """In one step, as a careful operator does."""
    new = path.with_suffix(".new")
    new.write_text(f'current = "{current}"\n[keys]\n' + "".join(f'{name} = "{key}"\n' for name, key in keys.items()))
    new.chmod(0o600)
    new.replace(path)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    write_keys(path, "first", first=FIRST)
    return path


def encryption(service: Any, **options: Any) -> Filter:
    service = {"file": str(service)} if isinstance(service, Path) else service
    return make_filters([{"type": "encryption", "keys": service, **options}])[0].filter


def values(data: Any) -> list[bytes | None]:
    return [record.value for record in iter_records(data)]


@pytest.mark.parametrize("compression", list(Compression))
def test_the_broker_sees_no_value_and_clients_see_all(keys: Path, compression: Compression) -> None:
    leader = Leader()
    sent = batch(
        b"secret" * 4_000,
        None,
        b"",
        compression=compression,
        producer_id=9,
        producer_epoch=3,
        base_sequence=40,
        is_transactional=True,
    )
    answer: Any = run_filter(encryption(keys), produce(sent), leader)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    stored = leader.stored["t", 0]
    before, after = parse_batch_header(sent), parse_batch_header(stored)
    assert after._replace(batch_length=0, crc=0) == before._replace(batch_length=0, crc=0)
    first, tombstone, empty = iter_records(stored, strict=True)
    assert b"secret" not in (first.value or b"")
    assert [name for name, _ in first.headers] == ["h", HEADER]
    assert (tombstone.value, tombstone.headers) == (None, (("h", b"1"),))
    assert first.key == b"k"
    assert empty.value != b""
    # Another proxy, which was started with the same keys.
    got = leader.fetched(encryption(keys))
    assert got.error_code == ErrorCode.NONE
    assert list(iter_records(got.records or b"")) == list(iter_records(sent))


def test_a_batch_without_values_and_other_topics_keep_their_bytes(keys: Path) -> None:
    leader = Leader()
    run_filter(encryption(keys), produce(batch(None, None)), leader)
    assert leader.stored["t", 0] == batch(None, None)
    run_filter(encryption(keys, topics="payments"), produce(batch(b"a")), leader)
    assert leader.stored["t", 0] == batch(b"a")
    assert values(leader.fetched(encryption(keys)).records) == [b"a"]


def test_keys_are_rotated_while_it_runs(keys: Path) -> None:
    one = encryption(keys, **{"key-hours": 1e-9})
    old, new = Leader(), Leader()
    run_filter(one, produce(batch(b"old")), old)
    write_keys(keys, "second", first=FIRST, second=SECOND)
    run_filter(one, produce(batch(b"new")), new)
    assert values(new.fetched(one).records) == [b"new"]
    write_keys(keys, "second", second=SECOND)
    another = encryption(keys)
    assert values(new.fetched(another).records) == [b"new"]
    assert old.fetched(another).error_code == ErrorCode.CORRUPT_MESSAGE
    write_keys(keys, "second", first=FIRST, second=SECOND)
    assert values(old.fetched(another).records) == [b"old"]


def test_what_was_tampered_with_is_not_given_out(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    run_filter(encryption(keys), produce(batch(b"mine")), leader)
    (record,) = iter_records(leader.stored["t", 0])
    assert record.value is not None
    for forged in (
        record._replace(key=b"another"),
        record._replace(value=record.value[:-1] + bytes([record.value[-1] ^ 1])),
        record._replace(headers=((HEADER, b"\x01" + bytes(80)),)),
    ):
        leader.stored["t", 0] = build_batch([forged])
        got = leader.fetched(encryption(keys))
        assert (got.error_code, bytes(got.records or b"")) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert "the value at offset 0 is not what was encrypted" in caplog.text
    assert "mine" not in caplog.text


def test_a_client_may_not_send_the_header_itself(keys: Path) -> None:
    sent = build_batch([Record(value=b"a"), Record(value=b"b", headers=((HEADER, b"\x01"),))])
    answer: Any = run_filter(encryption(keys), produce(sent))
    refused = answer.responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [it.batch_index for it in refused.record_errors] == [1]


def test_the_key_file_is_refused_where_it_is_wrong(keys: Path) -> None:
    one = encryption(keys, **{"key-hours": 1e-9})
    os.chmod(keys, 0o644)
    with pytest.raises(ProxyError, match=r"can be read by others: chmod 600"):
        encryption(keys)
    write_keys(keys, "third", first=FIRST)
    with pytest.raises(ProxyError, match="names no current key"):
        encryption(keys)
    # Producers try again while somebody mends it.
    answer: Any = run_filter(one, produce(batch(b"a")))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    write_keys(keys, "first", first="short")
    with pytest.raises(ProxyError, match="the key first is not 32 bytes in Base64"):
        encryption(keys)


class Vault:
    """The transit engine's two calls."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[bytes] = []
        self.calls: list[tuple[str, str]] = []
        self.status = 200

    def answer(self, path: str, token: str, body: Any) -> tuple[int, Any]:
        self.calls.append((path, token))
        if self.status != 200:
            return self.status, {"errors": []}
        if path.endswith("datakey/plaintext/orders"):
            self.keys.append(os.urandom(32))
            name = f"vault:v1:{len(self.keys) - 1}"
            return 200, {"data": {"plaintext": base64.b64encode(self.keys[-1]).decode(), "ciphertext": name}}
        found = self.keys[int(body["ciphertext"].rpartition(":")[2])]
        return 200, {"data": {"plaintext": base64.b64encode(found).decode()}}


@pytest.fixture
def vault() -> Iterator[Vault]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = running.answer(self.path, self.headers["X-Vault-Token"], body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Vault(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield running
        server.shutdown()
        thread.join()


def test_keys_of_a_vault(vault: Vault, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t-1\n")
    service = {"url": vault.url, "name": "orders", "token-file": str(token)}
    leader, one = Leader(), encryption(service)
    for _ in range(3):
        run_filter(one, produce(batch(b"a", b"b")), leader)
    assert vault.calls == [("/v1/transit/datakey/plaintext/orders", "t-1")]
    assert values(leader.fetched(one).records) == [b"a", b"b"]
    assert len(vault.calls) == 1
    another = encryption(service)
    for _ in range(2):
        assert values(leader.fetched(another).records) == [b"a", b"b"]
    assert vault.calls[1:] == [("/v1/transit/decrypt/orders", "t-1")]


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, ErrorCode.KAFKA_STORAGE_ERROR), (403, ErrorCode.KAFKA_STORAGE_ERROR), (400, ErrorCode.CORRUPT_MESSAGE)],
)
def test_a_vault_that_gives_no_key(
    vault: Vault, tmp_path: Path, status: int, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """What another try may mend is an error that clients retry."""
    token = tmp_path / "token"
    token.write_text("t-1")
    service = {"url": vault.url, "name": "orders", "token-file": str(token)}
    leader = Leader()
    run_filter(encryption(service), produce(batch(b"a")), leader)
    vault.status = status
    got = leader.fetched(encryption(service))
    assert got.error_code == code
    assert not got.records
    assert f"answers {status}" in caplog.text
    assert "t-1" not in caplog.text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"keys": "keys.toml"}, "keys: write it as a table"),
        ({"keys": {"file": "/none"}}, "/none cannot be read: No such file"),
        ({"keys": {"url": "http://v"}}, "keys: write either file, or url, name and token-file"),
        ({"keys": {"url": "v:8200", "name": "k", "token-file": "t"}}, "'v:8200' is not an http:// or https:// address"),
        ({"keys": {"url": "http://v", "name": "k", "token-file": "t"}, "key-hours": 0}, "key-hours: 0 is not a number"),
    ],
)
def test_what_its_table_may_not_say(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProxyError) as raised:
        make_filters([{"type": "encryption", **options}])
    assert str(raised.value).startswith("filter 1 (encryption): ")
    assert sentence in str(raised.value)
