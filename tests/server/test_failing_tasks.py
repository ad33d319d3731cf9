"""A node whose background work fails serves on, and says what fails; only for a few tasks it ends."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.server.cluster.controllership import Controllership
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.telemetry.readiness import degradations, unready_reasons
from ottla.storage.upkeep.cleaner import Cleaner
from ottla.storage.upkeep.scrubber import Scrubber
from tests.server.test_node import produce


class PlantedError(Exception):
    """What nobody foresaw."""


async def fail(*_: Any) -> None:
    await trio.lowlevel.checkpoint()
    raise PlantedError("planted")


async def test_a_loop_that_fails(serve_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = trio.Event()

    async def run(_: Any) -> None:
        failed.set()
        await fail()

    monkeypatch.setattr(Controllership, "run", run)
    async with serve_node(outlives_failures=True) as node:
        await failed.wait()
        await trio.testing.wait_all_tasks_blocked(0.01)
        client = await node.connect()
        await client.call(MetadataRequest(topics=[]), 12)
        (reason,) = unready_reasons(node.broker)
        assert "fails and is begun again: PlantedError: planted" in reason
        assert sum(node.broker.supervisor.failures.values()) >= 1


@pytest.mark.parametrize(
    ("work", "name"),
    [
        ((Cleaner, "_clean_store"), "storage.upkeep.cleaner.Cleaner.run"),
        ((Scrubber, "load"), "storage.upkeep.scrubber.Scrubber.run"),
    ],
)
async def test_upkeep_of_the_files_that_fails(
    serve_node: Any, monkeypatch: pytest.MonkeyPatch, work: tuple[type, str], name: str
) -> None:
    """It is begun again, and records are taken meanwhile."""
    attempts, again = [0], trio.Event()

    async def do(*_: Any, **__: Any) -> None:
        attempts[0] += 1
        if attempts[0] == 3:
            again.set()
        await fail()

    monkeypatch.setattr(*work, do)
    settings = {"log.cleaner.backoff.ms": "1", "log.retention.check.interval.ms": "1"}
    async with serve_node(settings, outlives_failures=True) as node:
        await node.create_topic("t")
        client = await node.connect()
        await client.call(produce("t", 0, b"a store without records is passed over"), 9)
        with trio.fail_after(60):
            await again.wait()
        (reason,) = unready_reasons(node.broker)
        assert name in reason
        assert "PlantedError: planted" in reason
        assert set(node.broker.supervisor.failures) == {name}
        await client.call(MetadataRequest(topics=[]), 12)


async def test_a_subscriber_that_fails(serve_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientQuotas, "apply", fail)
    async with serve_node(outlives_failures=True) as node:
        await node.create_topic("t")
        assert "t" in node.broker.metadata.topics
        assert unready_reasons(node.broker) == []
        (reason,) = degradations(node.broker)
        assert "PlantedError: planted" in reason


async def test_what_a_coordinator_begins_and_fails(serve_node: Any) -> None:
    async with serve_node(outlives_failures=True) as node:
        node.broker.coordinators.groups.runtime._nursery.start_soon(fail)
        await trio.testing.wait_all_tasks_blocked(0.01)
        client = await node.connect()
        await client.call(MetadataRequest(topics=[]), 12)
        assert degradations(node.broker)


async def test_who_cannot_follow_the_metadata_ends(serve_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve() -> None:
        async with serve_node(outlives_failures=True) as node:
            monkeypatch.setattr(type(node.broker.replica_manager._partitions), "apply", fail)
            await node.create_topic("t")

    with trio.fail_after(30), pytest.raises(BaseExceptionGroup) as caught:
        await serve()
    assert caught.group_contains(PlantedError)
