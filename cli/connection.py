"""The cluster that a command talks to."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.cli import CommandError
from ottla.client.addresses import parse_addresses
from ottla.client.client import Client
from ottla.client.errors import (
    AddressError,
    AuthenticationError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimedOutError,
    SecurityConfigError,
    UnknownTopicError,
    UnreachableError,
)
from ottla.client.security import NO_SECURITY, Security
from ottla.kproto.errors import ErrorCode

CLIENT_ID: Final = "ottla-cli"
_RIGHTS: Final = ": an administrator of the cluster can allow it with `ottla acl add`"
_BOOTSTRAP: Final = "OTTLA_BOOTSTRAP"
_DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_ADVICE: Final[dict[int, str]] = {
    ErrorCode.SECURITY_DISABLED: ": start the broker with an authorizer, as docs/security.md says",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: ": see `ottla transaction list`",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ": see `ottla topic list`",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _RIGHTS,
}
_PROBE_SECONDS: Final = 3.0
_GIVE: Final = "give --command-config a file with"


@contextmanager
def connected(arguments: Namespace) -> Iterator[Client]:
    """A client for the brokers that `--bootstrap` names; its errors become CommandError."""
    servers: list[tuple[str, int]] = []
    how = NO_SECURITY
    try:
        servers, how = bootstrap_servers(arguments.bootstrap), security(arguments.command_config)
        with Client(servers, arguments.timeout, CLIENT_ID, security=how) as client:
            yield client
    except ClientError as error:
        raise CommandError(f"{error}{_advice(error, servers, how)}") from None


def bootstrap_servers(given: str | None) -> list[tuple[str, int]]:
    """The addresses from `--bootstrap` or OTTLA_BOOTSTRAP, or the default. Raises AddressError if one is not an
    address.
    """
    variable = os.environ.get(_BOOTSTRAP)
    try:
        return parse_addresses(given or variable or _DEFAULT_BOOTSTRAP)
    except AddressError as error:
        raise AddressError(str(error) if given else f"{_BOOTSTRAP}: {error}") from None


def security(given: Path | None) -> Security:
    """How to connect, as `--command-config` or OTTLA_COMMAND_CONFIG says. CommandError if that cannot be read."""
    path = given or os.environ.get("OTTLA_COMMAND_CONFIG")
    if not path:
        return NO_SECURITY
    from ottla.client.security import from_properties, misspelt, read_properties

    try:
        properties = read_properties(path)
    except SecurityConfigError as error:
        raise CommandError(str(error)) from None
    for name, meant in misspelt(properties).items():
        print(f"{path}: {name} is not a setting: did you mean {meant}?", file=sys.stderr)
    try:
        return from_properties(properties)
    except SecurityConfigError as error:
        raise CommandError(f"{path}: {error}") from None


def _advice(error: ClientError, servers: list[tuple[str, int]], how: Security) -> str:
    """Advice in the words of the command line."""
    if isinstance(error, UnreachableError):
        if error.address not in [f"{host}:{port}" for host, port in servers]:
            return ", where the cluster says that one is: if that address is wrong, start it with --advertise"
        return ": is it running? Name another with --bootstrap host:port"
    if isinstance(error, ConnectionLostError) and not isinstance(error, RequestTimedOutError | AuthenticationError):
        return _other_protocol(servers, how)
    if isinstance(error, BrokerError) and error.code in _ADVICE:
        return _ADVICE[error.code]
    if isinstance(error, UnknownTopicError):
        create = f"`ottla topic create {error.topic}`"
        return f" Or create it: {create}" if error.nearest else f": create it with {create}"
    return ""


def _other_protocol(servers: list[tuple[str, int]], how: Security) -> str:
    """Advice where the broker speaks another protocol, or may do so."""
    from ottla.client.tls import speaks_tls

    is_encrypted = any(speaks_tls(host, port, _PROBE_SECONDS) for host, port in servers)
    if is_encrypted and how.tls is None:
        return f": it speaks TLS, so {_GIVE} security.protocol=SASL_SSL or SSL"
    if not is_encrypted and how.tls is not None:
        return f": it speaks no TLS, so {_GIVE} security.protocol=SASL_PLAINTEXT or PLAINTEXT"
    if how.login is None:
        return f": if it asks for a login, {_GIVE} security.protocol=SASL_{'SSL' if is_encrypted else 'PLAINTEXT'}"
    return ""
