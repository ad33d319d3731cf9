"""What `ottla doctor` looks at in the network: are the ports free or ours, and do clients reach the addresses that they
are told?
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from ottla.cli.doctor.finding import Finding, fail, ok, warn
from ottla.cli.exposure import WHAT_ANYBODY_CAN_DO, is_exposed, is_loopback
from ottla.client.client import Client
from ottla.client.errors import AuthenticationError, ClientError
from ottla.client.security import NO_SECURITY, Security
from ottla.client.tls import Tls
from ottla.server.network.endpoints import advertised_endpoints, listen_addresses
from ottla.server.network.listener import ListenAddress
from ottla.server.settings.config import BrokerConfig, ConfigError

_TIMEOUT_SECONDS: Final = 3.0
_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")


def examine(config: BrokerConfig, security: Security = NO_SECURITY) -> Iterator[Finding]:
    """Each listener, and what it advertises; those whose protocol is that of `security` are asked by a client that uses
    it.
    """
    try:
        addresses = listen_addresses(config)
        endpoints = advertised_endpoints(config, addresses)
    except ConfigError as error:
        yield fail("listeners", str(error), "correct listeners, or advertised.listeners")
        return
    for address, endpoint in zip(addresses, endpoints, strict=True):
        is_running = False
        subject = f"listener {address.host or '*'}:{address.port}"
        if address.port == 0:
            yield ok(subject, "will take a free port")
        elif (refusal := _bind(address)) is None:
            yield ok(subject, "free")
        elif _speaks_kafka(address, endpoint.security_protocol):
            is_running = True
            yield ok(subject, "a broker answers there")
        else:
            yield fail(
                subject,
                f"{refusal}, and no broker answers there",
                "stop the program that has it, or choose another --port",
            )
        yield _resolves(endpoint.host, endpoint.port)
        yield from _suits(address, endpoint.host)
        if is_exposed(address.host, endpoint.security_protocol, address.name, config):
            yield warn(
                f"access {address.host or '*'}:{address.port}",
                WHAT_ANYBODY_CAN_DO,
                "set up authentication, keep others away with a firewall, or --listen on 127.0.0.1",
            )
        if is_running and endpoint.security_protocol != _protocol(security):
            yield warn(
                f"reaching {endpoint.host}:{endpoint.port}",
                f"not tried, because it speaks {endpoint.security_protocol}",
                "give a client's properties for it by --command-config",
            )
        elif is_running:
            yield _round_trip(endpoint.host, endpoint.port, security)


def _bind(address: ListenAddress) -> str | None:
    """Why it is not possible to listen there; None if it is."""
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return f"{address.host} is not known: {error.strerror}"
    for family, kind, _, _, where in found:
        with contextlib.closing(socket.socket(family, kind)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(where)
            except OSError as error:
                return str(error.strerror)
    return None


def _speaks_kafka(address: ListenAddress, protocol: str) -> bool:
    """Whether a broker answers there, without logging in and without checking its certificate."""
    host = "127.0.0.1" if address.host in _EVERY_ADDRESS else address.host
    security = Security(tls=Tls(checks_certificates=False)) if protocol.endswith("SSL") else NO_SECURITY
    try:
        with Client([(host, address.port)], _TIMEOUT_SECONDS, security=security) as client:
            client.any_broker()
    except ClientError:
        return False
    return True


def _protocol(security: Security) -> str:
    encrypted = "SSL" if security.tls is not None else "PLAINTEXT"
    return encrypted if security.login is None else f"SASL_{encrypted}"


def _resolves(host: str, port: int) -> Finding:
    subject = f"advertised {host}:{port or '(its port)'}"
    try:
        found = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, port or None, type=socket.SOCK_STREAM)})
    except OSError as error:
        return fail(
            subject, f"{host} is not known here: {error.strerror}", "clients need it in DNS, or --advertise an IP"
        )
    return ok(subject, f"is {', '.join(found)}")


def _suits(address: ListenAddress, host: str) -> Iterator[Finding]:
    """A listener for other machines must not advertise an address at which those would reach themselves."""
    if is_loopback(address.host) or not is_loopback(host):
        return
    yield warn(
        f"advertised {host}",
        "clients on other machines will connect to themselves",
        "give --advertise the name or address by which they reach this machine",
    )


def _round_trip(host: str, port: int, security: Security) -> Finding:
    """As a client: connect to what is advertised, ask for metadata, and connect to what that names."""
    subject = f"reaching {host}:{port}"
    try:
        with Client([(host, port)], _TIMEOUT_SECONDS, security=security) as client:
            brokers = client.metadata([]).brokers
            for broker in brokers:
                client.broker(broker.node_id)
    except AuthenticationError as error:
        return fail(subject, str(error), "check the user, the password and the certificates of --command-config")
    except ClientError as error:
        return fail(subject, str(error), "check --advertise, name resolution and firewalls")
    named = ", ".join(f"{broker.node_id} at {broker.host}:{broker.port}" for broker in brokers)
    return ok(subject, f"metadata names {named}, which answers" if len(brokers) == 1 else f"reached {named}")
