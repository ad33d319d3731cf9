"""Metrics that clients push: who is asked for what, what is refused, and what stands on `/metrics` (KIP-714)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.telemetry.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.kproto.messages.telemetry.push_telemetry import PushTelemetryRequest
from ottla.kproto.records.compression import compress
from ottla.kproto.records.types import Compression
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.errors import InvalidConfigError
from ottla.metadata.image import ConfigResource, ResourceType
from tests.kproto.otlp_encoding import counter, gauge, pushed

Serve = Callable[..., Any]

WITH_HTTP = {"ottla.http.listen": "127.0.0.1:0", "ottla.metadata.store": "memory"}
NOBODY = UUID(int=0)


async def subscribe(node: Any, name: str, **configs: str) -> None:
    """Set a subscription; `_` for `.` in names."""
    changes = [
        ConfigChange(key.replace("_", "."), ConfigOperation.SET if value else ConfigOperation.DELETE, value or None)
        for key, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.CLIENT_METRICS, name)
    error = (await node.broker.controller.alter_configs({resource: changes}))[resource]
    if error is not None:
        raise error


async def ask(client: Any, instance: UUID = NOBODY) -> Any:
    return await client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance), 0)


async def push(client: Any, told: Any, metrics: bytes = b"", compression: int = 0, **fields: Any) -> ErrorCode:
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=fields.pop("subscription_id", told.subscription_id),
        compression_type=compression,
        metrics=metrics,
        **fields,
    )
    return ErrorCode((await client.call(request, 0)).error_code)


async def scraped(node: Any) -> str:
    async with httpx.AsyncClient() as http:
        return (await http.get(f"{node.http_url}/metrics")).text


async def test_what_a_client_is_asked_for_and_pushes_stands_on_the_page(serve_node: Serve) -> None:
    async with serve_node(WITH_HTTP) as node:
        await subscribe(node, "all", metrics="org.", interval_ms="100")
        await subscribe(node, "mine", metrics="a.,b.", interval_ms="200", match="client_id=te.*,client_software_name=x")
        await subscribe(node, "others", metrics="*", interval_ms="100", match="client_id=other")
        client = await node.connect()
        await client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        told = await ask(client)
        assert told.error_code == 0
        assert told.client_instance_id != NOBODY
        assert told.requested_metrics == ["a.", "b.", "org."]
        assert told.push_interval_ms == 100
        assert told.accepted_compression_types == [4, 3, 1, 2]
        assert (told.telemetry_max_bytes, told.delta_temporality) == (1_048_576, True)

        for number, compression in enumerate(Compression):
            body = pushed(gauge("a.rate", float(number), node="1"), counter("a.total", 2))
            await trio.sleep(told.push_interval_ms / 1000)
            assert await push(client, told, compress(compression, body), compression) == 0
        page = await scraped(node)
        instance = urlsafe_b64encode(told.client_instance_id.bytes).decode().rstrip("=")
        who = f'client_instance_id="{instance}",client_id="test"'
        assert f'ottla_client_gauge{{{who},metric="a.rate",attributes="node=1"}} 4.0\n' in page
        assert f'ottla_client_counter_total{{{who},metric="a.total",attributes=""}} 10.0\n' in page
        assert "ottla_client_metrics_clients 1\n" in page
        assert "ottla_client_metrics_pushes_total 5\n" in page

        await trio.aclose_forcefully(client.stream)
        with trio.fail_after(5):
            while "ottla_client_metrics_clients 1\n" in await scraped(node):
                pass
        assert "a.rate" not in await scraped(node)


async def test_it_is_offered_while_anybody_is_asked(serve_node: Serve) -> None:
    """librdkafka prints a line as soon as it is offered, whether or not there is anything to push."""

    async def offered(node: Any) -> bool:
        client = await node.connect()
        told = await client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        keys = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY} & {it.api_key for it in told.api_keys}
        assert len(keys) in (0, 2)
        return bool(keys)

    async with serve_node(WITH_HTTP) as node:
        assert not await offered(node)
        await subscribe(node, "s", metrics="a.")
        assert await offered(node)
        await subscribe(node, "s", metrics="")
        assert not await offered(node)


async def test_what_is_refused(serve_node: Serve) -> None:
    async with serve_node({**WITH_HTTP, "telemetry.max.bytes": "200"}) as node:
        client = await node.connect()
        told = await ask(client)
        assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, [], 300_000)
        assert (await ask(client, told.client_instance_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        body = pushed(gauge("a", 1))
        assert await push(client, told, body, 5) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await ask(client, told.client_instance_id)).error_code == 0
        assert await push(client, told, body) == ErrorCode.THROTTLING_QUOTA_EXCEEDED

        await subscribe(node, "s", metrics="a.", interval_ms="100")
        assert await push(client, told, body) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        told = await ask(client, told.client_instance_id)
        assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, ["a."], 100)
        await trio.sleep(0.1)
        assert await push(client, told, b"\x0b") == ErrorCode.INVALID_RECORD
        assert await push(client, told, body) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await trio.sleep(0.1)
        assert await push(client, told, compress(Compression.ZSTD, bytes(100_000)), 4) == ErrorCode.INVALID_RECORD
        await trio.sleep(0.1)
        assert await push(client, told, b"x" * 201) == ErrorCode.TELEMETRY_TOO_LARGE
        assert await push(client, told, body, terminating=True) == 0
        assert await push(client, told, body) == ErrorCode.INVALID_REQUEST
        told.client_instance_id = NOBODY
        assert await push(client, told, body) == ErrorCode.INVALID_REQUEST


async def test_a_subscription_that_goes(serve_node: Serve) -> None:
    async with serve_node(WITH_HTTP) as node:
        await subscribe(node, "s", metrics="*,b.", interval_ms="100")
        client = await node.connect()
        told = await ask(client)
        assert told.requested_metrics == ["*"]
        await subscribe(node, "s", metrics="", interval_ms="")
        assert await push(client, told, pushed(gauge("a", 1))) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert (await ask(client, told.client_instance_id)).requested_metrics == []


async def test_the_number_of_series_is_bounded(serve_node: Serve) -> None:
    async with serve_node({**WITH_HTTP, "ottla.metrics.max.client.series": "3"}) as node:
        client = await node.connect()
        first, second = await ask(client, uuid4()), await ask(client, uuid4())
        assert await push(client, first, pushed(gauge("a", 1), counter("b", 1), gauge("a", 2, x="y"))) == 0
        assert await push(client, second, pushed(gauge("a", 1), counter("c", 1))) == 0
        page = await scraped(node)
        assert page.count("\nottla_client_gauge{") + page.count("\nottla_client_counter_total{") == 3
        assert "ottla_client_metrics_dropped_series_total 2\n" in page


@pytest.mark.parametrize("leaves", [False, True])
async def test_many_series_are_entered_in_steps(serve_node: Serve, *, leaves: bool) -> None:
    count = 3000
    body = pushed(*(gauge(f"a.{number}", 1.0) for number in range(count)))
    async with (
        serve_node({"ottla.metadata.store": "memory", "ottla.metrics.max.client.series": str(count)}) as node,
        trio.open_nursery() as nursery,
    ):
        manager = node.broker.client_metrics
        seen = set()

        async def push_all(client_id: UUID) -> Any:
            told = manager.ask(client_id, {})[1].subscription_id
            options = {"subscription_id": told, "is_last": False, "compression": 0, "metrics": body}
            return await manager.push(client_id, {}, **options)

        async def watch(client_id: UUID, client: Any) -> None:
            while True:
                await trio.lowlevel.checkpoint()
                seen.add(len(client.pushed))
                if leaves and len(client.pushed):
                    manager.forget(client_id, client)

        first = uuid4()
        _, client = manager.ask(first, {})
        client.asked_at_ms = float("-inf")
        nursery.start_soon(watch, first, client)
        await push_all(first)
        assert seen.difference({0, count}), "nobody else had a turn"
        if leaves:  # what it had taken room for is free again
            assert len((await push_all(uuid4())).pushed) == count
            assert manager.dropped_series == 0
        nursery.cancel_scope.cancel()


async def test_silent_clients_are_forgotten(serve_node: Serve, autojump_clock: trio.testing.MockClock) -> None:
    async with serve_node({"ottla.metadata.store": "memory"}) as node:
        manager = node.broker.client_metrics
        _, client = manager.ask(uuid4(), {"client_id": "a"})
        assert len(list(manager.clients())) == 1
        await trio.sleep(3 * client.interval_ms / 1000 + 1)
        assert (list(manager.clients()), len(manager)) == ([], 0)


async def test_without_a_page_nobody_is_asked(serve_node: Serve) -> None:
    async with serve_node({"ottla.metadata.store": "memory"}) as node:
        client = await node.connect()
        answer = await client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
        served = {api.api_key for api in answer.api_keys}
        assert not served & {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.mark.parametrize("pair", ["client_id", "client_id=", "id=x", "client_id=a=b", "client_id=(", "client_id=(?=a)"])
async def test_patterns_that_are_none(serve_node: Serve, pair: str) -> None:
    async with serve_node({"ottla.metadata.store": "memory"}) as node:
        with pytest.raises(InvalidConfigError, match="Illegal client matching pattern"):
            await subscribe(node, "s", match=pair)
