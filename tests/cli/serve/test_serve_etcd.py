"""A broker whose metadata is in etcd: what it does without, and what it refuses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import main
from tests.etcd import Etcd, needs_etcd

pytestmark = needs_etcd


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path / "etcd")
    etcd.start()
    yield etcd
    etcd.close()


def test_a_broker_serves_while_etcd_is_down(tmp_path: Path, etcd: Etcd, broker_class: type[Any]) -> None:
    where = ["--metadata", f"etcd://{etcd.hosts}/orders", "--set", "node.id=-1"]
    broker = broker_class(tmp_path / "data", *where)
    assert broker.ready["node_id"] == 1
    broker.run("topic", "create", "orders")
    etcd.kill()
    broker.run("produce", "orders", stdin=b"a\n")
    assert broker.run("consume", "orders").stdout == b"a\n"
    refused = broker.run("topic", "create", "later", check=False)
    assert refused.returncode != 0
    assert b"REQUEST_TIMED_OUT" in refused.stderr
    etcd.start()
    for _ in range(100):
        if broker.run("topic", "create", "later", "--if-not-exists", check=False).returncode == 0:
            break
    broker.run("produce", "later", stdin=b"b\n")
    assert broker.run("consume", "later").stdout == b"b\n"
    assert broker.stop() == 0
    # All is as it was, also for a broker that begins with it.
    broker = broker_class(tmp_path / "data", *where)
    assert broker.ready["node_id"] == 1
    assert broker.run("consume", "orders").stdout == b"a\n"
    assert broker.stop() == 0


def test_a_folder_with_metadata_of_its_own_is_refused(
    tmp_path: Path, etcd: Etcd, broker_class: type[Any], capsys: Any
) -> None:
    broker = broker_class(tmp_path / "data")
    broker.run("topic", "create", "orders")
    assert broker.stop() == 0
    words = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--metadata", f"etcd://{etcd.hosts}/orders"]
    assert main(words) != 0
    assert "move it there with `ottla cluster move-metadata`" in capsys.readouterr().err


def test_etcd_that_cannot_be_reached_is_said(tmp_path: Path, capsys: Any) -> None:
    words = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--metadata", "etcd://127.0.0.1:1/orders"]
    assert main(words) != 0
    assert "cannot be reached (127.0.0.1:1: Connection refused)." in capsys.readouterr().err


def test_without_httpx_the_extra_is_named(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in [name for name in sys.modules if name.startswith("ottla.metastore.etcd")]:
        monkeypatch.delitem(sys.modules, name)
    words = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--metadata", "etcd://127.0.0.1:1/orders"]
    assert main(words) != 0
    assert "needs httpx, which is not installed: pip install 'ottla[etcd]'" in capsys.readouterr().err
