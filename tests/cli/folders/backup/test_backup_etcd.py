"""`ottla backup` of a broker whose metadata is in etcd: the backup can be served without that etcd."""

from __future__ import annotations

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


def test_a_backup_with_the_metadata_of_etcd(tmp_path: Path, etcd: Etcd, broker_class: type[Any]) -> None:
    metadata = f"etcd://{etcd.hosts}/orders"
    data, backup, restored = (tmp_path / name for name in ("data", "backup", "restored"))
    broker = broker_class(data, "--metadata", metadata)
    broker.run("topic", "create", "orders", "-c", "retention.ms=12345678")
    broker.run("produce", "orders", stdin=b"a\n")
    broker.run("backup", str(backup), "--data-dir", str(data), "--metadata", metadata)
    assert broker.stop() == 0
    etcd.kill()

    assert main(["restore", str(backup), "--data-dir", str(restored)]) == 0
    broker = broker_class(restored)
    assert broker.run("consume", "orders").stdout == b"a\n"
    assert b"12345678" in broker.run("topic", "describe", "orders").stdout
    assert broker.stop() == 0


def test_without_its_address_the_metadata_is_missed(
    tmp_path: Path, etcd: Etcd, broker_class: type[Any], capsys: Any
) -> None:
    data = tmp_path / "data"
    broker = broker_class(data, "--metadata", f"etcd://{etcd.hosts}/orders")
    done = broker.run("backup", str(tmp_path / "backup"), "--data-dir", str(data))
    assert b"without metadata: if etcd keeps it, name etcd with --metadata" in done.stdout
    assert broker.stop() == 0
    for wrong, words in (
        (f"etcd://{etcd.hosts}/nothing", "holds no cluster"),
        ("etcd://127.0.0.1:1/orders", "cannot be reached"),
        ("sqlite", "use it only with etcd://"),
        ("http://x", "It must be sqlite, memory, or etcd://"),
    ):
        target = tmp_path / "another"
        assert main(["backup", str(target), "--data-dir", str(data), "--metadata", wrong]) != 0
        assert words in capsys.readouterr().err


def test_an_etcd_with_another_cluster_is_refused(
    tmp_path: Path, etcd: Etcd, broker_class: type[Any], capsys: Any
) -> None:
    """As is a prefix with none: the folder's topics would look deleted."""
    data = tmp_path / "data"
    broker = broker_class(data, "--metadata", f"etcd://{etcd.hosts}/ours")
    broker.run("topic", "create", "orders")
    assert broker.stop() == 0
    other = broker_class(tmp_path / "other", "--metadata", f"etcd://{etcd.hosts}/theirs")
    assert other.stop() == 0
    words = ["serve", "--port", "0", "--data-dir", str(data), "--metadata", f"etcd://{etcd.hosts}/theirs"]
    assert main(words) != 0
    assert "belongs to the cluster" in capsys.readouterr().err
    broker = broker_class(data, "--metadata", f"etcd://{etcd.hosts}/ours")
    assert b"orders" in broker.run("topic", "list").stdout
    assert broker.stop() == 0
