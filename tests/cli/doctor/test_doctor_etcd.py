"""What `ottla doctor` says of etcd as the metadata store."""

from __future__ import annotations

import errno
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from ottla.cli.doctor import etcd as doctor_etcd
from ottla.cli.doctor.finding import Finding
from ottla.metadata import keys
from ottla.metadata.open_store import open_etcd
from ottla.metastore.address import parse_metadata_address
from ottla.metastore.store import Put
from ottla.settings.config import BrokerConfig
from ottla.storage.disk import RealDisk
from ottla.storage.node_dir import NodeDir
from tests.etcd import Etcd, needs_etcd

pytestmark = needs_etcd


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path / "etcd")
    etcd.start()
    yield etcd
    etcd.close()


def examine(hosts: str, data_dir: Path) -> dict[str, Finding]:
    config = BrokerConfig({"ottla.metadata.store": f"etcd://{hosts}/orders"})
    return {finding.subject: finding for finding in doctor_etcd.examine(config, str(data_dir))}


def make_cluster(hosts: str, cluster_id: str) -> None:
    async def write() -> None:
        config = BrokerConfig({"ottla.metadata.store": f"etcd://{hosts}/orders"})
        address = parse_metadata_address(config.ottla_metadata_store)
        assert address is not None
        store = await open_etcd(address, config)
        await store.commit([], [Put(keys.CLUSTER_ID, keys.encode(cluster_id))])
        await store.close()

    trio.run(write)


def test_an_etcd_that_is_well(etcd: Etcd, tmp_path: Path) -> None:
    found = examine(etcd.hosts, tmp_path)
    assert {finding.level for finding in found.values()} <= {"ok", "warn"}  # a busy machine is slow
    assert found[f"etcd {etcd.hosts}"].message.startswith("version 3.")
    assert found["etcd alarms"].message == "none"
    assert found["clocks"] == Finding("ok", "clocks", "this machine's and etcd's agree to within 2 s", "")
    assert found["metadata"].message == "there is no cluster under /orders yet: the first start creates it"
    make_cluster(etcd.hosts, "ours")
    assert examine(etcd.hosts, tmp_path)["metadata"].message == "/orders holds the cluster ours"


def test_a_folder_that_may_not_be_read_names_no_cluster(
    etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data_dir: Path) -> list[int]:
        raise PermissionError(errno.EACCES, "Permission denied", str(data_dir))

    monkeypatch.setattr(doctor_etcd, "node_ids_in", refuse)
    make_cluster(etcd.hosts, "ours")
    assert examine(etcd.hosts, tmp_path)["metadata"].message == "/orders holds the cluster ours"


def test_the_cluster_of_another_folder(etcd: Etcd, tmp_path: Path) -> None:
    node_dir = NodeDir(RealDisk(), str(tmp_path), 1)
    node_dir.open()
    node_dir.join("ours")
    node_dir.close(clean=True)
    found = examine(etcd.hosts, tmp_path)["metadata"]
    assert (found.level, found.message) == (
        "fail",
        f"there is no cluster under /orders, and {tmp_path} belongs to the cluster ours",
    )
    make_cluster(etcd.hosts, "theirs")
    found = examine(etcd.hosts, tmp_path)["metadata"]
    assert (found.level, found.message) == (
        "fail",
        f"/orders holds the cluster theirs, and {tmp_path} belongs to the cluster ours",
    )


def test_a_full_database(etcd: Etcd, tmp_path: Path) -> None:
    raised = json.dumps({"action": "ACTIVATE", "memberID": "0", "alarm": "NOSPACE"}).encode()
    url = f"http://{etcd.hosts}/v3/maintenance/alarm"
    with urllib.request.urlopen(urllib.request.Request(url, data=raised), timeout=120) as answer:
        assert answer.status == 200
    found = examine(etcd.hosts, tmp_path)["etcd alarms"]
    assert (found.level, found.message) == ("fail", "its database is full: it takes no changes")
    assert "etcdctl alarm disarm" in found.advice


def test_members_that_do_not_answer(etcd: Etcd, tmp_path: Path) -> None:
    found = examine(f"{etcd.hosts},127.0.0.1:1,127.0.0.1:2", tmp_path)
    assert found["etcd 127.0.0.1:1"].level == "fail"
    assert "Connection refused" in found["etcd 127.0.0.1:1"].message
    assert found["etcd"].message == "1 of 3 members answer; etcd needs more than half of them"
    assert "metadata" in found


def test_nothing_is_said_where_the_metadata_is_elsewhere(tmp_path: Path) -> None:
    assert list(doctor_etcd.examine(BrokerConfig({}), str(tmp_path))) == []
