"""A broker whose process has died is fenced long before its session ends; one that lives is left alone."""

from __future__ import annotations

import pytest
import trio

from ottla.metadata.image import MetadataImage
from ottla.server.cluster.failure_detector import GONE_SECONDS
from tests.clusters import RunCluster

LONG = {"broker.session.timeout.ms": "600000"}


def live(image: MetadataImage) -> list[int]:
    return sorted(broker.node_id for broker in image.live_brokers())


@pytest.mark.parametrize("victim", [1, 3])
async def test_who_is_killed_is_fenced_soon_the_controller_as_well(run_cluster: RunCluster, victim: int) -> None:
    async with run_cluster(3, LONG) as cluster:
        assert cluster[2].image.controller_id == 1
        await cluster.until_connected()
        await cluster.kill(victim)
        left = sorted({1, 2, 3} - {victim})
        await cluster.until(lambda image: live(image) == left and image.controller_id in left)
        await cluster.start(victim)
        await cluster.until(lambda image: live(image) == [1, 2, 3])


async def test_two_of_three_at_once(run_cluster: RunCluster) -> None:
    async with run_cluster(3, LONG) as cluster:
        await cluster.until_connected()
        await cluster.kill(1)
        await cluster.kill(3)
        await cluster.until(lambda image: live(image) == [2] and image.controller_id == 2)


async def test_who_comes_back_before_is_not_fenced(run_cluster: RunCluster) -> None:
    async with run_cluster(2, LONG) as cluster:
        await cluster.until_connected()
        epoch = cluster[1].image.brokers[2].epoch
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.until(lambda image: image.brokers[2].epoch > epoch)
        epoch = cluster[1].image.brokers[2].epoch
        with trio.move_on_after(GONE_SECONDS * 1.5):
            while True:
                image = await cluster[1].broker.controller.next_image()
                assert live(image) == [1, 2]
        assert cluster[1].image.brokers[2].epoch == epoch
