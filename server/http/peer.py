"""The address of an HTTP port's client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request

VISITOR_HEADER: Final = "x-ottla-visitor"
"""By which the page of all nodes tells each node whom it asks for."""


def peer_host(request: Request) -> str:
    """The address that a request comes from; that of the visitor, where the page of all nodes asks for them.

    Nobody else can say so: only what comes by a socket of this machine has no address itself.
    """
    return request.client.host if request.client is not None else request.headers.get(VISITOR_HEADER, "")
