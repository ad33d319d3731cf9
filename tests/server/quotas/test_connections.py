"""How fast connections may come, and how many there may be."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.server.quotas.connections import (
    CONNECTION_CREATION_RATE,
    ConnectionLimits,
    ConnectionRates,
    ListenerLimits,
)

Serve = Callable[..., Any]

BROKERS = ConfigResource(ResourceType.BROKER, "")


async def delays(rates: ConnectionRates, limits: ConnectionLimits, count: int) -> float:
    """How long accepting pauses for so many connections that come at once."""
    total = 0.0
    for _ in range(count):
        seconds = rates.delay_seconds("L", limits)
        total += seconds
        await trio.sleep(seconds)
    return total


@pytest.mark.parametrize(
    "limits",
    [ConnectionLimits(max_creation_rate=5), ConnectionLimits(listeners={"L": ListenerLimits(max_creation_rate=5)})],
)
async def test_accepting_pauses_until_the_rate_is_right(limits: ConnectionLimits, autojump_clock: MockClock) -> None:
    rates = ConnectionRates()
    assert await delays(rates, limits, 50) == 0.0  # ten seconds' worth, as a rate is taken over
    began = trio.current_time()
    await delays(rates, limits, 100)
    assert 100 / (trio.current_time() - began) == pytest.approx(5, rel=0.2)


async def test_another_listener_has_a_rate_of_its_own(autojump_clock: MockClock) -> None:
    rates = ConnectionRates()
    limits = ConnectionLimits(listeners={"L": ListenerLimits(max_creation_rate=1)})
    assert sum(rates.delay_seconds("L", limits) for _ in range(20)) > 0
    assert sum(rates.delay_seconds("M", limits) for _ in range(20)) == 0


async def test_an_address_beyond_its_quota_is_kept_waiting_and_does_not_count(autojump_clock: MockClock) -> None:
    rates = ConnectionRates()
    await rates.set_quotas({(("ip", "10.0.0.1"),): {CONNECTION_CREATION_RATE: 1.0}})
    assert [rates.throttle_seconds("10.0.0.1") for _ in range(10)] == [0.0] * 10
    for _ in range(100):
        assert 0.0 < rates.throttle_seconds("10.0.0.1") <= 1.0
    assert rates.throttle_seconds("10.0.0.2") == 0.0
    await trio.sleep(11)
    assert rates.throttle_seconds("10.0.0.1") == 0.0


async def test_the_default_quota_holds_for_each_other_address_by_itself(autojump_clock: MockClock) -> None:
    rates = ConnectionRates()
    await rates.set_quotas(
        {(("ip", None),): {CONNECTION_CREATION_RATE: 1.0}, (("ip", "::1"),): {CONNECTION_CREATION_RATE: 100.0}}
    )
    assert sum(rates.throttle_seconds("10.0.0.1") > 0 for _ in range(20)) == 10
    assert sum(rates.throttle_seconds("10.0.0.2") > 0 for _ in range(10)) == 0
    assert sum(rates.throttle_seconds("::1") > 0 for _ in range(100)) == 0


async def test_addresses_are_compared_as_addresses(autojump_clock: MockClock) -> None:
    rates = ConnectionRates()
    await rates.set_quotas({(("ip", "0:0:0:0:0:0:0:1"),): {CONNECTION_CREATION_RATE: 1.0}})
    assert sum(rates.throttle_seconds("::1") > 0 for _ in range(11)) == 1


def changed_to(quotas: Any) -> Any:
    return SimpleNamespace(quotas_changed=True, after=SimpleNamespace(quotas=quotas))


async def test_many_quotas_are_read_in_steps_and_hold_all_at_once() -> None:
    rates = ConnectionRates()
    few: Any = {(("ip", "10.0.0.1"),): {CONNECTION_CREATION_RATE: 0.0}}
    await rates.apply(changed_to(few))
    seen = []

    async def look() -> None:
        while True:
            seen.append((rates.throttle_seconds("10.0.0.1") > 0, rates.throttle_seconds("10.1.3.231") > 0))
            await trio.lowlevel.checkpoint()

    many: Any = {(("ip", f"10.1.{n >> 8}.{n & 255}"),): {CONNECTION_CREATION_RATE: 0.0} for n in range(1000)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.lowlevel.checkpoint()
        await rates.apply(changed_to(many))
        nursery.cancel_scope.cancel()
    assert len(seen) > 3, "nobody else had a turn"
    assert set(seen) <= {(True, False), (False, True)}
    assert rates.throttle_seconds("10.1.3.231") > 0


async def answers(node: Any) -> bool:
    """Whether a new connection is served."""
    client = await node.connect()
    try:
        return bool((await client.call(ApiVersionsRequest(), 0)).api_keys)
    except (EOFError, trio.BrokenResourceError):
        return False


async def test_a_node_closes_what_an_address_has_too_much_of(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.broker.controller.alter_client_quotas({(("ip", "127.0.0.1"),): {CONNECTION_CREATION_RATE: 1.0}})
        assert [await answers(node) for _ in range(12)] == [True] * 10 + [False] * 2
        assert node.broker.listeners.refused["connection_creation_rate"] == 2


async def test_limits_change_while_the_node_runs(serve_node: Serve) -> None:
    async with serve_node() as node:
        assert await answers(node)

        async def alter(value: str) -> None:
            change = ConfigChange("max.connections.per.ip", ConfigOperation.SET, value)
            assert await node.broker.controller.alter_configs({BROKERS: [change]}) == {BROKERS: None}

        await alter("1")
        assert not await answers(node)
        assert node.broker.listeners.refused["max.connections.per.ip"] == 1
        await alter("10")
        assert await answers(node)


async def test_a_listener_that_is_full_accepts_when_one_closes(serve_handlers: Serve) -> None:
    async def handle(request: Any, context: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse()

    limits = {"PLAINTEXT": ListenerLimits(max_connections=1)}
    async with serve_handlers({ApiKey.API_VERSIONS: handle}, listeners=limits) as server:
        first, second = await server.connect(), await server.connect()
        await first.call(ApiVersionsRequest(), 0)
        await second.send(ApiVersionsRequest(), 0)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert server.listeners.connection_count == 1
        assert server.listeners.delayed == 1
        await first.stream.aclose()
        await second.receive(ApiKey.API_VERSIONS, 0)


async def test_a_quota_of_changes_holds_for_topics_that_are_created_by_asking(serve_node: Serve) -> None:
    async with serve_node({"num.partitions": "30"}) as node:
        await node.broker.controller.alter_client_quotas({(("client-id", None),): {"controller_mutation_rate": 1.0}})
        client = await node.connect()

        async def ask(name: str) -> ErrorCode:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            return ErrorCode((await client.call(request, 9)).topics[0].error_code)

        assert await ask("a") is ErrorCode.NONE
        assert await ask("b") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
