"""Which names the HTTP port is asked for by: another site must not read it through a visitor's browser.

With DNS rebinding a site makes its own name point at this address, and its pages then may read what is answered to that
name. So nothing is told under a name that somebody else can own.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cache, wraps
from ipaddress import ip_address
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.server.broker import Broker

_REFUSAL = "This name is not one of the broker's. Set ottla.console.allowed.hosts to let it in.\n"

Endpoint = Callable[["Request"], Awaitable[Response]]


def host_name(header: str) -> str:
    """The name in a Host header, without the port."""
    bare = header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0]
    return bare.lower().rstrip(".")


def is_local(name: str, allowed: Iterable[str]) -> bool:
    """Whether a name is an IP address, which nobody can make another site of, localhost, or one of `allowed`."""
    return _is_address(name) or name == "localhost" or name in {one.lower() for one in allowed}


def for_known_hosts(broker: Broker, endpoint: Endpoint) -> Endpoint:
    """`endpoint`, answering 421 where it is asked for by a name that is not the broker's.

    These are the names that `for_hosts` lets in, and those that clients are told to connect to.
    """
    return for_hosts(lambda: broker.config.ottla_console_allowed_hosts or (), lambda: _advertised(broker), endpoint)


def for_hosts(allowed: Callable[[], Iterable[str]], own: Callable[[], Iterable[str]], endpoint: Endpoint) -> Endpoint:
    """`endpoint`, answering 421 where it is asked for by a name that somebody else can own.

    Beside what `is_local` says, `own` names are let in, no Host at all, a name without a dot, which no site on the
    internet can have, and the machine's own name.
    """

    @wraps(endpoint)
    async def guarded(request: Request) -> Response:
        name = host_name(request.headers.get("host", ""))
        if "." not in name or is_local(name, allowed()) or name in _names_of_machine() or name in set(own()):
            return await endpoint(request)
        return PlainTextResponse(_REFUSAL, 421)

    return guarded


def _advertised(broker: Broker) -> Iterator[str]:
    registered = broker.metadata.brokers.get(broker.node_id)
    endpoints = () if registered is None else registered.endpoints
    return (endpoint.host.lower() for endpoint in endpoints)


@cache
def _names_of_machine() -> frozenset[str]:
    return frozenset({socket.gethostname().lower()})


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
