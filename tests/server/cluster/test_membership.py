"""Several nodes make a cluster: who is alive, who is the controller, and what becomes of it when nodes come and go."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
import trio

from ottla.kproto.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.metadata import keys
from ottla.metadata.controller import Controller
from ottla.metadata.errors import DuplicateBrokerIdError
from ottla.metadata.image import NO_LEADER, BrokerImage, MetadataImage
from tests.clusters import Cluster, RunCluster


def live(image: MetadataImage) -> list[int]:
    return sorted(broker.node_id for broker in image.live_brokers())


async def test_all_are_alive_and_one_is_the_controller(run_cluster: RunCluster) -> None:
    async with run_cluster(3, {"broker.rack": "r"}) as cluster:
        assert {node.image.controller_id for node in cluster.nodes.values()} == {1}
        assert {node.image.cluster_id for node in cluster.nodes.values()} == {cluster[1].image.cluster_id}
        for node_id in cluster.nodes:
            client = await cluster.connect(node_id)
            response = await client.call(DescribeClusterRequest(), 2)
            ports = [(it.broker_id, it.port, it.rack, it.is_fenced) for it in response.brokers]
            assert ports == [(it, cluster[it].port, "r", False) for it in (1, 2, 3)]
            assert response.controller_id == 1


async def test_who_stops_is_fenced_at_once_and_another_is_the_controller(run_cluster: RunCluster) -> None:
    async with run_cluster(3, {"broker.session.timeout.ms": "600000"}) as cluster:
        await cluster.stop(1)
        await cluster.until(lambda image: live(image) == [2, 3] and image.controller_id in (2, 3))
        client = await cluster.connect(2)
        response = await client.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
        assert [(it.broker_id, it.is_fenced) for it in response.brokers] == [(1, True), (2, False), (3, False)]
        await cluster.start(1)
        await cluster.until(lambda image: live(image) == [1, 2, 3])
        assert cluster[1].image.controller_id in (2, 3)
        assert cluster[1].image.brokers[1].was_clean


async def test_who_is_killed_is_fenced_when_its_session_ends(run_cluster: RunCluster) -> None:
    async with run_cluster(3) as cluster:
        await cluster.kill(1)
        assert live(cluster[2].image) == [1, 2, 3]
        await cluster.until(lambda image: live(image) == [2, 3] and image.controller_id in (2, 3))


async def test_who_comes_back_to_its_folder_does_not_wait_for_its_former_session(run_cluster: RunCluster) -> None:
    async with run_cluster(2, {"broker.session.timeout.ms": "600000"}) as cluster:
        former = cluster[1].image.brokers[1]
        await cluster.kill(1)
        await cluster.start(1)
        now = cluster[1].image.brokers[1]
        assert (now.directory_id, now.fenced) == (former.directory_id, False)
        assert now.incarnation != former.incarnation
        assert now.epoch > former.epoch
        assert cluster[1].image.controller_id == 1


async def test_a_session_that_ends_before_it_is_registered_is_begun_anew(
    run_cluster: RunCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the process stands still for long in between."""
    real = Controller.register_broker
    ended: list[int] = []

    async def late(self: Controller, broker: BrokerImage, lease: int, *, is_new: bool) -> None:
        if not ended:
            ended.append(lease)
            await self._store.revoke_lease(lease)
        await real(self, broker, lease, is_new=is_new)

    monkeypatch.setattr(Controller, "register_broker", late)
    async with run_cluster(1) as cluster:
        assert live(cluster[1].image) == [1]
    assert ended
    assert "had ended before it was registered" in caplog.text


async def test_another_node_under_the_same_id_is_refused(run_cluster: RunCluster, tmp_path: Path) -> None:
    async with run_cluster(2, {"broker.session.timeout.ms": "300"}) as cluster:
        running = cluster[2]
        epochs = cluster[1].image.starts
        with pytest.raises(DuplicateBrokerIdError, match=rf"node 2 .* at 127.0.0.1:{running.port}: .* node.id"):
            await start_alone(cluster, 2, tmp_path / "elsewhere")
        assert live(cluster[1].image) == [1, 2]
        assert cluster[1].image.starts == epochs
        cluster.nodes[2] = running


async def test_another_folder_may_have_the_id_when_the_session_has_ended(
    run_cluster: RunCluster, tmp_path: Path
) -> None:
    async with run_cluster(2) as cluster:
        former = cluster[2].image.brokers[2]
        await cluster.kill(2)
        await cluster.start(2, folder=tmp_path / "elsewhere")
        await cluster.until(lambda image: live(image) == [1, 2])
        assert cluster[1].image.brokers[2].directory_id != former.directory_id


async def start_alone(cluster: Cluster, node_id: int, folder: Path) -> None:
    """Start a node whose failure is told here instead of ending the cluster."""
    try:
        await cluster.start(node_id, folder=folder)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            (error,) = error.exceptions
        raise error from None


async def test_a_broker_that_was_fenced_registers_anew_and_becomes_controller_again(run_cluster: RunCluster) -> None:
    async with run_cluster(1) as cluster:
        before = cluster[1].image.brokers[1]
        (lease,) = {entry.lease for entry in (await cluster.store.list(keys.ALIVE)).entries}
        await cluster.store.revoke_lease(lease)
        await cluster.until(lambda image: image.brokers[1].fenced and image.controller_id == NO_LEADER)
        await cluster.until(lambda image: not image.brokers[1].fenced and image.controller_id == 1)
        after = cluster[1].image.brokers[1]
        assert after.incarnation == before.incarnation
        assert after.epoch > before.epoch


@pytest.mark.parametrize("is_copy", [False, True])
async def test_a_process_whose_id_was_taken_while_it_was_frozen_ends(
    run_cluster: RunCluster, tmp_path: Path, is_copy: bool
) -> None:
    async with run_cluster(1) as cluster:

        async def lose_the_id() -> None:
            async with trio.open_nursery() as nursery:
                other = Cluster(tmp_path, nursery, {})
                other.store = cluster.store
                frozen = await other.start(2)
                frozen.store.is_cut_off = True
                elsewhere = tmp_path / "elsewhere"
                if is_copy:
                    shutil.copytree(tmp_path / "data-2", elsewhere)
                else:
                    await cluster.until(lambda image: live(image) == [1])
                await cluster.start(2, folder=elsewhere)
                frozen.store.is_cut_off = False
                await frozen.ended.wait()

        with pytest.raises(BaseExceptionGroup) as raised:
            await lose_the_id()
        assert raised.group_contains(DuplicateBrokerIdError, match="Another process runs as node 2")
        assert live(cluster[1].image) == [1, 2]


async def test_who_cannot_reach_the_store_is_fenced_and_comes_back(
    run_cluster: RunCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with run_cluster(2) as cluster:
        cluster[2].store.is_cut_off = True
        await cluster.until(lambda image: live(image) == [1], 1)
        assert not cluster[2].ended.is_set()
        cluster[2].store.is_cut_off = False
        await cluster.until(lambda image: live(image) == [1, 2])
    told = [it.message for it in caplog.records if "metadata store" in it.message]
    assert len(told) == 2
    assert "cannot be reached" in told[0]
    assert told[1].endswith("can be reached again")
