"""The limits on connections as they are configured, and the names in them."""

from __future__ import annotations

import logging
import resource
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
import trio.testing

from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.server.network.connection_settings import ConnectionSettings, connection_limits
from ottla.server.network.network import TcpNetwork
from ottla.server.quotas.connections import ConnectionLimits, ListenerLimits
from ottla.settings.config import BrokerConfig

BROKERS = ConfigResource(ResourceType.BROKER, "")
OVERRIDES = "max.connections.per.ip.overrides"


@pytest.mark.parametrize(("files", "connections"), [(1024, 768), (65_536, 65_280), (300, 150)])
def test_the_store_keeps_descriptors_for_itself(monkeypatch: pytest.MonkeyPatch, files: int, connections: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0"})
    assert connection_limits(config).max_connections == connections
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert connection_limits(config).max_connections == config.max_connections


def test_limits_come_from_the_configuration() -> None:
    limits = connection_limits(
        BrokerConfig(
            {
                "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
                "max.connections": "100",
                "listener.name.out.max.connections": "10",
                "listener.name.out.max.connection.creation.rate": "3",
                "max.connections.per.ip": "7",
                "max.connections.per.ip.overrides": "127.0.0.1:50, [::1]:60",
            }
        )
    )
    assert limits.max_connections == 100
    assert limits.of_listener("OUT") == ListenerLimits(10, 3)
    assert limits.of_listener("IN").max_connections == 100
    assert (limits.of_address("127.0.0.1"), limits.of_address("::1"), limits.of_address("10.1.1.1")) == (50, 60, 7)


class Listeners:
    """Remembers what it was given last."""

    limits: ConnectionLimits

    def set_limits(self, limits: ConnectionLimits) -> None:
        self.limits = limits


class NameServer:
    """Knows some hosts, says so of others, and answers nothing about the rest."""

    def __init__(self, **known: set[str] | None) -> None:
        self.known = known
        self.asked: list[str] = []

    async def look_up(self, host: str) -> set[str]:
        self.asked.append(host)
        if host not in self.known:
            await trio.sleep_forever()
        addresses = self.known[host]
        if addresses is None:
            raise OSError(0, "Name or service not known")
        return addresses


class Settings:
    def __init__(self, names: NameServer, overrides: str) -> None:
        self.listeners = Listeners()
        self.config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", OVERRIDES: overrides})
        self.settings = ConnectionSettings(self.config, names, self.listeners)  # type: ignore[arg-type]
        self.settings.renew()

    def set(self, overrides: str) -> None:
        self.config.set_dynamic({OVERRIDES: overrides}, {})
        self.settings.renew()

    @property
    def overrides(self) -> Mapping[str, int]:
        return self.listeners.limits.per_ip_overrides


async def test_names_are_looked_up_once(autojump_clock: trio.testing.MockClock) -> None:
    names = NameServer(a={"10.0.0.1", "::1"}, b={"10.0.0.2"})
    it = Settings(names, "10.0.0.9:9,a:1")
    assert it.overrides == {"10.0.0.9": 9}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.settings.run)
        await trio.testing.wait_all_tasks_blocked()
        assert it.overrides == {"10.0.0.9": 9, "10.0.0.1": 1, "::1": 1}
        it.set("a:3,b:2")
        assert it.overrides == {"10.0.0.1": 3, "::1": 3}
        await trio.testing.wait_all_tasks_blocked()
        assert it.overrides == {"10.0.0.1": 3, "::1": 3, "10.0.0.2": 2}
        await trio.sleep(1000)
        nursery.cancel_scope.cancel()
    assert names.asked == ["a", "b"]


async def test_what_is_not_known_is_told_once_and_looked_up_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    names = NameServer(gone=None)
    it = Settings(names, "gone:1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.settings.run)
        with caplog.at_level(logging.WARNING):
            await trio.sleep(150)
        assert len(names.asked) == 3
        (told,) = caplog.messages
        assert told == f"{OVERRIDES}: gone is not known: Name or service not known"
        names.known["gone"] = {"10.0.0.1"}
        await trio.sleep(60)
        assert it.overrides == {"10.0.0.1": 1}
        nursery.cancel_scope.cancel()


async def test_a_change_during_a_lookup_counts_after_it(autojump_clock: trio.testing.MockClock) -> None:
    names = NameServer(b={"10.0.0.2"})
    found = trio.Event()

    async def look_up(host: str) -> set[str]:
        await found.wait()
        return {"10.0.0.1"}

    it = Settings(names, "a:1")
    asked, names.look_up = names.look_up, look_up  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.settings.run)
        await trio.testing.wait_all_tasks_blocked()
        it.set("b:2,10.0.0.3:3")
        assert it.overrides == {"10.0.0.3": 3}
        names.look_up = asked  # type: ignore[method-assign]
        found.set()
        await trio.testing.wait_all_tasks_blocked()
        assert it.overrides == {"10.0.0.3": 3, "10.0.0.2": 2}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["a..b", "x" * 300])
async def test_what_cannot_be_a_name_is_not_known(host: str) -> None:
    with pytest.raises(OSError, match="label"):
        await TcpNetwork().look_up(host)


async def test_a_name_server_that_never_answers_holds_up_nothing(
    serve_node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, test_is_over, was_waited_for = socket.getaddrinfo, threading.Event(), threading.Event()

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if str(host).endswith("never.example"):
            if not test_is_over.wait(60):
                was_waited_for.set()
            raise OSError(0, "no answer")
        return real(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def alter(node: Any, name: str, value: str) -> None:
        change = ConfigChange(name, ConfigOperation.SET, value)
        assert await node.broker.controller.alter_configs({BROKERS: [change]}) == {BROKERS: None}

    try:
        async with serve_node({OVERRIDES: "first.never.example:1"}) as node:  # the start
            await alter(node, OVERRIDES, "second.never.example:7,127.0.0.1:1")  # the image
            await alter(node, "max.connections.per.ip", "5")
            await node.create_topic("t")
            assert node.broker.listeners._limits.of_address("10.1.1.1") == 5
            assert node.broker.listeners._limits.of_address("127.0.0.1") == 1
        assert not was_waited_for.is_set()  # the stop
    finally:
        test_is_over.set()
