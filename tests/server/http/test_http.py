"""The HTTP port: health, readiness, and that its failure is its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from ottla.runtime.errors import StartupError
from ottla.server.http import health, server
from ottla.server.http.server import HttpServer
from ottla.server.network.endpoints import parse_http_address
from ottla.server.network.listener import ListenAddress
from ottla.settings.config import ConfigError

Serve = Callable[..., Any]

HTTP = {"ottla.http.listen": "127.0.0.1:0"}


async def get(url: str, path: str) -> tuple[int, str]:
    """The status and body of one request."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        received = b"".join([data async for data in stream])
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def status_of(url: str, path: str, host_header: str) -> int:
    async with httpx.AsyncClient(headers={"host": host_header}) as client:
        return (await client.get(url + path)).status_code


async def test_a_node_that_serves_is_healthy_and_ready(serve_node: Serve) -> None:
    async with serve_node(HTTP) as node:
        assert await get(node.http_url, "/healthz") == (200, "ok\n")
        status, body = await get(node.http_url, "/readyz")
        assert (status, json.loads(body)) == (200, {"ready": True, "reasons": [], "degraded": []})
        assert (await get(node.http_url, "/nothing"))[0] == 404


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("127.0.0.1:9100", 200),
        ("[::1]:9100", 200),
        ("localhost", 200),
        ("ottla:9100", 200),
        ("", 200),
        ("metrics.example.com", 200),
        ("broker.example.com:9100", 200),
        ("evil.example.com", 421),
        ("evil.example.com:9100", 421),
        ("127.0.0.1.evil.example.com", 421),
    ],
)
async def test_metrics_are_told_under_names_of_the_broker_only(serve_node: Serve, name: str, status: int) -> None:
    settings = {
        **HTTP,
        "ottla.console.allowed.hosts": "metrics.example.com",
        "advertised.listeners": "PLAINTEXT://broker.example.com:9092",
    }
    async with serve_node(settings) as node:
        assert await status_of(node.http_url, "/metrics", name) == status


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
async def test_a_connection_that_is_not_kept_is_closed_after_the_answer(serve_node: Serve, path: str) -> None:
    async with serve_node(HTTP) as node:
        with trio.fail_after(20):
            assert (await get(node.http_url, path))[0] == 200


async def test_damage_leaves_it_ready_and_is_named(serve_node: Serve) -> None:
    async with serve_node(HTTP) as node:
        node.broker.log_manager.context.damage.found("/data/1.data", 7, "1.data is damaged")
        status, body = await get(node.http_url, "/readyz")
        assert (status, json.loads(body)) == (200, {"ready": True, "reasons": [], "degraded": ["1.data is damaged"]})


async def test_without_the_setting_there_is_no_http_port(serve_node: Serve) -> None:
    async with serve_node() as node:
        assert node.http_url is None


async def test_readyz_says_what_is_missing(serve_node: Serve) -> None:
    async with serve_node(HTTP) as node:
        await node.create_topic("t")
        (store, *_) = node.broker.log_manager.stores()
        node.broker.group_coordinator.runtime.elect(3)  # its topic is not there
        await trio.testing.wait_all_tasks_blocked()
        store.fail(OSError(5, "Input/output error"))
        node.broker.end_serving()
        status, body = await get(node.http_url, "/readyz")
    assert status == 503
    assert json.loads(body)["reasons"] == [
        "the node is starting or stopping",
        "the group coordinator could not load 1 partitions",
        "1 stores are offline",
    ]


async def test_its_failure_does_not_end_the_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no HTTP today")

    monkeypatch.setattr(server, "_prepare", fail)
    http = HttpServer(ListenAddress("HTTP", "127.0.0.1", 0))
    await http.run(None)  # type: ignore[arg-type]
    assert "the broker continues" in caplog.text
    assert "no HTTP today" in caplog.text
    with pytest.raises(OSError, match=r"."):
        await get(http.url, "/healthz")


async def test_a_page_that_fails_is_answered_and_logged_and_the_others_stay(
    serve_node: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("it broke")

    monkeypatch.setattr(health, "unready_reasons", fail)
    async with serve_node(HTTP) as node:
        assert (await get(node.http_url, "/readyz"))[0] == 500
        assert "it broke" in caplog.text
        assert (await get(node.http_url, "/healthz"))[0] == 200


async def test_what_is_no_http_closes_its_connection_alone(serve_node: Serve) -> None:
    async with serve_node(HTTP) as node:
        host, _, port = node.http_url.removeprefix("http://").rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(b"\x00\x01\x02 nonsense\r\n\r\n" * 100)
            answered = b"".join([data async for data in stream])
        assert b" 400 " in answered.partition(b"\r\n")[0]
        assert (await get(node.http_url, "/healthz"))[0] == 200


def test_a_port_in_use_is_refused_by_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StartupError, match="--http"):
        HttpServer(ListenAddress("HTTP", "127.0.0.1", taken.getsockname()[1]))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("8080", "127.0.0.1", 8080), ("0.0.0.0:0", "0.0.0.0", 0), (":9644", "", 9644), ("[::1]:80", "::1", 80)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_http_address(text)[1:] == (host, port)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:70000", "host:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write host:port"):
        parse_http_address(text)
