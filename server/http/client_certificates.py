"""Whose certificate a connection to a port of HTTP has shown, as the applications behind it are told.

ASGI's TLS extension has a place for the name: `scope["extensions"]["tls"]["client_cert_name"]`. Hypercorn leaves it
empty, so it is remembered in the context of the connection's task, which the tasks of its requests inherit.
"""

from __future__ import annotations

import ssl
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ottla.security.distinguished_name import distinguished_name

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_NAME: Final[ContextVar[str | None]] = ContextVar("ottla_client_certificate", default=None)


class _Remembering(ssl.SSLObject):
    """A connection that remembers, for what its task does next, whose certificate it has been shown."""

    def do_handshake(self) -> None:
        super().do_handshake()
        certificate: Any = self.getpeercert()
        subject = certificate.get("subject") if certificate else None
        _NAME.set(distinguished_name(subject) if subject else None)


def tell_certificates(application: ASGIApp, context: ssl.SSLContext | None) -> ASGIApp:
    """`application`, told the client's name (RFC 2253) if the context asks clients for certificates."""
    if context is None or context.verify_mode == ssl.CERT_NONE:
        return application
    context.sslobject_class = _Remembering

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        name = _NAME.get()
        if scope["type"] == "http" and name is not None:
            extensions = scope.setdefault("extensions", {})
            extensions["tls"] = {**extensions.get("tls", {}), "client_cert_name": name}
        await application(scope, receive, send)

    return told
