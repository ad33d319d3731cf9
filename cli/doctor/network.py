"""Checks of the network by `ottla doctor`: are the ports free or ours, and are the advertised addresses reachable?"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

from ottla.cli.access.exposure import WHAT_ANYBODY_CAN_DO, is_exposed, is_loopback
from ottla.cli.doctor.finding import Finding, fail, ok, warn
from ottla.client import tls
from ottla.client.client import Client
from ottla.client.errors import AuthenticationError, ClientError
from ottla.client.security import NO_SECURITY, Security
from ottla.client.tls import Tls
from ottla.runtime.errors import ListenError
from ottla.security.tls import client_auth
from ottla.server.network.endpoints import advertised_endpoints, listen_addresses
from ottla.server.network.listener import ListenAddress
from ottla.server.network.network import open_listening_socket
from ottla.settings.config import BrokerConfig, ConfigError

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
        listener, is_running = _listener(address, endpoint.security_protocol, config, security)
        yield listener
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


def is_taken(address: ListenAddress) -> bool:
    """Whether somebody listens there already."""
    refused = _refused(address, "--port")
    return refused is not None and refused.is_taken


def port(address: ListenAddress, flag: str) -> Finding | None:
    """Whether a port can be had; None if somebody has it."""
    subject = f"{'listener' if flag == '--port' else flag} {address.host or '*'}:{address.port}"
    refused = _refused(address, flag)
    if refused is None:
        return ok(subject, "free" if address.port else "will take a free port")
    return None if refused.is_taken else fail(subject, refused.reason, refused.advice)


def _refused(address: ListenAddress, flag: str) -> ListenError | None:
    """Why it is not possible to listen there, as the start would find it."""
    try:
        open_listening_socket(address.host, address.port, 1, flag).close()
    except ListenError as error:
        return error
    return None


def _listener(address: ListenAddress, protocol: str, config: BrokerConfig, security: Security) -> tuple[Finding, bool]:
    """Findings about a port of clients, and whether a broker serves it as these settings say."""
    finding = port(address, "--port")
    if finding is not None:
        return finding, False
    subject = f"listener {address.host or '*'}:{address.port}"
    is_encrypted = protocol.endswith("SSL")
    where = ("127.0.0.1" if address.host in _EVERY_ADDRESS else address.host, address.port)
    if _speaks_kafka(where, Security(tls=_unchecked(security)) if is_encrypted else NO_SECURITY):
        return ok(subject, "a broker answers there"), True
    speaks_tls = tls.speaks_tls(*where, _TIMEOUT_SECONDS)
    if is_encrypted and speaks_tls and client_auth(config, address.name, protocol) == "required":
        return ok(subject, "a broker answers there, and asks for a certificate"), True
    if is_encrypted and not speaks_tls and _speaks_kafka(where, NO_SECURITY):
        return _other_settings(subject, "a broker answers there in plain text"), False
    if not is_encrypted and speaks_tls:
        return _other_settings(subject, "who answers there encrypts"), False
    said = "it is taken, and no broker answers there"
    return fail(subject, said, "stop the program that has it, or choose another --port"), False


def _other_settings(subject: str, said: str) -> Finding:
    advice = "give the flags and the file that the broker was started with; for another broker choose another --port"
    return fail(subject, f"{said}, which is not what these settings say", advice)


def _unchecked(security: Security) -> Tls:
    """The client's own certificate, if it has one, and trust in everybody."""
    known = security.tls or Tls()
    return Tls(None, known.key_and_chain, known.key_password, checks_certificates=False)


def _speaks_kafka(where: tuple[str, int], security: Security) -> bool:
    """Whether a broker answers there, without logging in and without checking its certificate."""
    try:
        with Client([where], _TIMEOUT_SECONDS, security=security) as client:
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
