"""How the supervisor and a process of its own talk: lines of JSON over a pair of sockets.

When either ends, however suddenly, the other one reads the end of the stream. So a node whose supervisor was killed
stops in order by itself.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.server.main import Ready

logger = logging.getLogger(__name__)

Message = dict[str, Any]

STOP: Final[Message] = {"do": "stop"}
CUT_SHORT: Final[Message] = {"do": "cut short"}

_PIECE_BYTES: Final = 65_536
_MOST_BYTES: Final = 1 << 20


class Lines:
    """Assembles messages from the pieces of a stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that are complete now. Raises ValueError if these cannot be messages."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _MOST_BYTES:
            raise ValueError("a message without an end")
        return [json.loads(line) for line in whole]


def send(link: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a whole message; if nobody is there to read it, nothing happens."""
    try:
        link.setblocking(True)
        link.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        pass
    finally:
        link.setblocking(False)


def receive(link: socket.socket, lines: Lines) -> list[Message] | None:
    """The messages that have arrived; None at the end of the stream."""
    try:
        piece = link.recv(_PIECE_BYTES)
    except BlockingIOError:
        return []
    except OSError:
        return None
    return lines.feed(piece) if piece else None


class UnderSupervisor:
    """The supervisor, as a node's process sees it: a `Starter`."""

    #: Ctrl-C and a closed terminal are for the supervisor to handle.
    stop_signals: Sequence[signal.Signals] = (signal.SIGTERM,)

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def ready(self, ready: Ready) -> None:
        """Report where the node serves, so that its next process listens there again."""
        listeners = ",".join(
            f"{it.name}://{f'[{it.host}]' if ':' in it.host else it.host}:{it.port}" for it in ready.listening
        )
        endpoint = ready.endpoints[0]
        self.tell(
            {
                "event": "ready",
                "node_id": ready.node_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "pid": os.getpid(),
                "listeners": listeners,
                "http": ready.http_url,
                "registry": ready.registry_url,
                "rest": ready.rest_url,
            }
        )

    def failed(self, error: CommandError) -> None:
        """Report why the node cannot start."""
        self.tell({"event": "failed", "error": str(error)})

    def tell(self, message: Message) -> None:
        send(self._link, message)

    async def follow(
        self,
        stop: Callable[[], None],
        cut_short: Callable[[], None],
        hear: Callable[[Message], None] = lambda _: None,
    ) -> None:
        """Obey the supervisor until the node has ended. `hear` is called with every message that is not an order."""
        import trio

        lines = Lines()
        while True:
            await trio.lowlevel.wait_readable(self._link)
            messages = receive(self._link, lines)
            if messages is None:
                logger.error("the process that supervises the nodes is gone: stopping")
                stop()
                return
            for message in messages:
                if message == STOP:
                    stop()
                elif message == CUT_SHORT:
                    cut_short()
                else:
                    hear(message)
