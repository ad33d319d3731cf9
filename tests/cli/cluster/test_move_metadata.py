"""`ottla cluster move-metadata` with a real etcd, and a broker before, between and after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import main
from tests.etcd import Etcd, needs_etcd


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path / "etcd")
    etcd.start()
    yield etcd
    etcd.close()


@needs_etcd
def test_into_etcd_and_back(tmp_path: Path, etcd: Etcd, broker_class: type[Any], capsys: Any) -> None:
    data_dir, url = tmp_path / "data", f"etcd://{etcd.hosts}/moved"
    words = ["cluster", "move-metadata"]

    broker = broker_class(data_dir)
    broker.run("topic", "create", "orders")
    broker.run("produce", "orders", stdin=b"a\n")
    assert main([*words, "--from", str(data_dir), "--to", url]) != 0
    assert "is in use by process" in capsys.readouterr().err
    assert broker.stop() == 0

    assert main([*words, "--from", str(data_dir), "--to", url]) == 0
    assert f"start every node with --metadata {url}" in capsys.readouterr().out
    assert main(["serve", "--port", "0", "--data-dir", str(data_dir)]) != 0
    assert f"has moved to {url}: start with that" in capsys.readouterr().err

    broker = broker_class(data_dir, "--metadata", url)
    assert broker.run("consume", "orders").stdout == b"a\n"
    broker.run("produce", "orders", stdin=b"b\n")
    broker.run("topic", "create", "later")
    assert main([*words, "--from", url, "--to", str(data_dir)]) != 0
    assert "is in use by process" in capsys.readouterr().err
    assert broker.stop() == 0
    _fsck(data_dir, url, etcd, capsys)

    assert main([*words, "--from", url, "--to", str(data_dir)]) == 0
    broker = broker_class(data_dir)
    assert broker.run("consume", "orders").stdout == b"a\nb\n"
    assert b"later" in broker.run("topic", "list").stdout
    assert broker.stop() == 0


def _fsck(data_dir: Path, url: str, etcd: Etcd, capsys: Any) -> None:
    """Looks for the topics where the metadata is, and nowhere else."""
    words = ["fsck", "--data-dir", str(data_dir), "--delete-unknown", "--yes"]
    assert main([*words, "--metadata", url]) == 0
    assert "every topic with data is known" in capsys.readouterr().out
    for wrong, sentence in (
        ([], "has moved to etcd://"),
        (["--metadata", f"etcd://{etcd.hosts}/empty"], "holds no cluster"),
        (["--metadata", "etcd:"], "It must be sqlite, memory, or etcd://"),
    ):
        assert main([*words, *wrong]) != 0
        assert sentence in capsys.readouterr().err


def test_what_is_wrong_is_said(tmp_path: Path, capsys: Any) -> None:
    words = ["cluster", "move-metadata"]
    for places, sentence in (
        ((tmp_path, "etcd://a b/c:d"), "cluster.sqlite is missing"),
        (("etcd://host:port", tmp_path), "'port' is not a port"),
        (("sqlite", tmp_path), "name the data folder"),
        (("http://a", tmp_path), "It must be sqlite, memory, or etcd://"),
    ):
        assert main([*words, "--from", str(places[0]), "--to", str(places[1])]) != 0
        assert sentence in capsys.readouterr().err
