"""One client's connection, and the connection to upstream that is made for it.

Each client has its own connection to the broker, so that order, pipelining, sessions, authentication and back-pressure
work as they do without a proxy. Two flows live in `serve`; what they share is their `Exchange`. When one side ends, the
other one does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from ottla.kproto.errors import ProtocolError
from ottla.proxy.errors import EndOfStreamError, NotLetInError, ProxyError, RefusedError
from ottla.proxy.exchange import Exchange
from ottla.proxy.requests import Requests
from ottla.proxy.responses import Responses

if TYPE_CHECKING:
    from ottla.proxy.rewriting import Addresses
    from ottla.proxy.shared import Shared
    from ottla.proxy.transport import Accepted, Transport

logger = logging.getLogger(__name__)


class Connection:
    """Serves one client. `serve` is its whole life, and closes the connection to upstream."""

    def __init__(
        self, accepted: Accepted, upstream: Transport, shared: Shared, addresses: Addresses, *, peer: str, listener: str
    ) -> None:
        self._exchange = Exchange(accepted, upstream, shared, addresses, peer=peer, listener=listener)
        self._requests = Requests(self._exchange)
        self._responses = Responses(self._exchange)
        self._moved_bytes = 0
        self._moved_at = trio.current_time()

    async def serve(self) -> None:
        """Forward until one side ends, or `stop`; raises only Cancelled."""
        exchange = self._exchange
        try:
            with exchange.life:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._run, self._requests)
                    nursery.start_soon(self._run, self._responses)
                    if (login := exchange.admission.login) is not None:
                        nursery.start_soon(self._end_if_unknown, login.seconds)
        finally:
            exchange.upstream.close()

    def stop(self) -> None:
        """Accept no further request; the connection ends when those under way are answered."""
        self._requests.stop()

    def end_if_idle(self, idle_seconds: float) -> bool:
        """End the connection if nothing has moved on it for this long. It only looks when it is called, so call it
        often.
        """
        moved_bytes, now = self._requests.received_bytes + self._responses.received_bytes, trio.current_time()
        if moved_bytes != self._moved_bytes:
            self._moved_bytes, self._moved_at = moved_bytes, now
        if now - self._moved_at < idle_seconds:
            return False
        self._exchange.life.cancel()
        return True

    async def _end_if_unknown(self, seconds: float) -> None:
        """End the connection of a client that does not authenticate in time."""
        await trio.sleep(seconds)
        if not self._exchange.is_in and not self._exchange.admission.is_open:
            self._exchange.refuse(f"it has not authenticated within {seconds:g} s")
            self._exchange.life.cancel()

    async def _run(self, flow: Requests | Responses) -> None:
        exchange = self._exchange
        try:
            await flow.run()
        except (RefusedError, ProtocolError) as error:
            exchange.shared.metrics.refused["frame"] += 1
            what = f"{flow.sender} sent {error}" if isinstance(error, RefusedError) else f"{flow.sender}: {error}"
            logger.warning("closed the connection from %r: %s", exchange, what, extra=exchange.keys(what))
        except NotLetInError as error:
            exchange.refuse(str(error))
        except ProxyError as error:
            logger.warning("closed the connection from %r: %s", exchange, error, extra=exchange.keys(str(error)))
        except (OSError, EndOfStreamError) as error:
            logger.debug("the connection from %r was lost: %s", exchange, error, extra=exchange.keys(str(error)))
        except Exception as error:
            # For example of a message that a filter has changed: neither side is to blame.
            logger.exception("closed the connection from %r, which failed", exchange, extra=exchange.keys(repr(error)))
        if flow is self._requests and flow.is_stopped:
            exchange.end_requests()
        else:
            exchange.life.cancel()
