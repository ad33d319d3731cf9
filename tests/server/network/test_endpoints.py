"""Listeners and what is advertised for them."""

import socket

import pytest

from ottla.server.network.connection_settings import connection_limits
from ottla.server.network.endpoints import (
    advertised_endpoints,
    listen_addresses,
    listener_protocols,
    parse_listener,
)
from ottla.server.network.listener import ListenAddress
from ottla.settings.config import BrokerConfig, ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", ListenAddress("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://:0", ListenAddress("PLAINTEXT", "", 0)),
        ("INSIDE://[::1]:9093", ListenAddress("INSIDE", "::1", 9093)),
    ],
)
def test_a_listener_is_name_host_port(text: str, expected: ListenAddress) -> None:
    assert parse_listener(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9092",
        "host:9092",
        "PLAINTEXT://host",
        "PLAINTEXT://host:",
        "PLAINTEXT://host:x",
        "://host:1",
        "A://h:70000",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a listener"):
        parse_listener(text)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "name of its own"),
        ({"listeners": "INSIDE://h:1"}, "INSIDE"),
        ({"listeners": "X://h:1", "listener.security.protocol.map": "X:TLS"}, "TLS, which is not supported"),
    ],
)
def test_listeners_that_cannot_be_served(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        listen_addresses(BrokerConfig(settings))


def test_the_port_of_a_kraft_controller_is_none_of_clients() -> None:
    """As in the server.properties that comes with Kafka."""
    settings = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    config = BrokerConfig(settings)
    assert [address.port for address in listen_addresses(config)] == [9092]
    assert [it.port for it in advertised_endpoints(config, listen_addresses(config))] == [9092]
    assert listener_protocols(config) == {"PLAINTEXT": "PLAINTEXT"}
    assert connection_limits(config).listeners.keys() == {"PLAINTEXT"}
    with pytest.raises(ConfigError, match="none for clients"):
        listen_addresses(BrokerConfig(settings | {"listeners": "CONTROLLER://:9093"}))


def test_named_listeners() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://127.0.0.1:1,OUTSIDE://0.0.0.0:2",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT, OUTSIDE:PLAINTEXT",
            "advertised.listeners": "OUTSIDE://broker.example:0",
        }
    )
    inside, outside = advertised_endpoints(config, listen_addresses(config))
    assert (inside.listener, inside.host, inside.port, inside.security_protocol) == (
        "INSIDE",
        "127.0.0.1",
        1,
        "PLAINTEXT",
    )
    assert (outside.listener, outside.host, outside.port) == ("OUTSIDE", "broker.example", 2)


@pytest.mark.parametrize(
    ("host", "advertised"), [("localhost", "127.0.0.1"), ("0.0.0.0", socket.gethostname()), ("", socket.gethostname())]
)
def test_what_is_advertised_by_default(host: str, advertised: str) -> None:
    (endpoint,) = advertised_endpoints(BrokerConfig(), [ListenAddress("PLAINTEXT", host, 9)])
    assert (endpoint.host, endpoint.port) == (advertised, 9)


@pytest.mark.parametrize(
    ("text", "words"),
    [("PLAINTEXT://0.0.0.0:9", "cannot be advertised"), ("OTHER://h:9", "OTHER"), ("h:9", "is not a listener")],
)
def test_what_cannot_be_advertised(text: str, words: str) -> None:
    config = BrokerConfig({"advertised.listeners": text})
    with pytest.raises(ConfigError, match=words):
        advertised_endpoints(config, [ListenAddress("PLAINTEXT", "127.0.0.1", 9)])
