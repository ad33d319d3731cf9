"""The proxy's own login to upstream, on each connection before a client's first request is sent over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.protocol import ClientProtocol, State
from ottla.proxy.transport import send_all

if TYPE_CHECKING:
    from ottla.client.security import Login
    from ottla.proxy.transport import Transport

_RECEIVE_BYTES: Final = 4096


async def log_in(transport: Transport, login: Login, address: str, client_id: str) -> None:
    """Authenticate by SASL. Nothing else may be under way on the connection.

    Raises OSError, and ClientError, which says why upstream does not let the proxy in.
    """
    protocol = ClientProtocol(address, client_id, login=login)
    protocol.start()
    buffer = memoryview(bytearray(_RECEIVE_BYTES))
    while protocol.state is not State.OPEN:
        await send_all(transport, protocol.data_to_send())
        try:
            count = transport.receive_into(buffer)
        except BlockingIOError:
            await transport.wait_readable()
            continue
        protocol.feed(bytes(buffer[:count]))
