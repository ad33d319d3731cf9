"""A node's coordinators are there when somebody needs them, and not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.metadata.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

Serve = Callable[..., Any]


def made(node: Any) -> set[str]:
    return {"groups", "transactions", "markers"} & set(vars(node.broker.coordinators))


async def test_a_node_begins_without(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.create_topic("t")
        assert not made(node)


async def test_who_asks_for_one_gets_the_same_each_time(serve_node: Serve) -> None:
    async with serve_node() as node:
        groups = node.broker.group_coordinator
        assert made(node) == {"groups"}
        assert node.broker.group_coordinator is groups
        assert node.broker.transaction_coordinator is node.broker.transaction_coordinator
        assert made(node) == {"groups", "transactions", "markers"}


async def test_each_is_made_with_its_topic_and_coordinates_it_after_a_restart(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.broker.controller.ensure_topic(CONSUMER_OFFSETS)
        assert made(node) == {"groups"}
        await node.broker.controller.ensure_topic(TRANSACTION_STATE)
        assert made(node) == {"groups", "transactions", "markers"}
    async with serve_node() as node:
        assert made(node) == {"groups", "transactions", "markers"}
        image = node.broker.metadata
        for coordinator, name in (
            (node.broker.group_coordinator, CONSUMER_OFFSETS),
            (node.broker.transaction_coordinator, TRANSACTION_STATE),
        ):
            coordinated = coordinator.runtime.loading() + len(coordinator.runtime.loaded_shards())
            assert coordinated == len(image.topic(name).partitions)
