"""A network of hosts between which bytes take their time, and which can be cut, slowed and partitioned.

Connections are streams, as TCP's: in order, with a window, and whole unless they end. Each direction of a pair of hosts
can be blocked by itself; what is under way then comes when it is open again, as if resent. A process that dies has its
connections closed or reset by its machine; a machine that dies says nothing, and resets what it no longer knows when it
is back. So a peer learns of a death at once, late, or when it sends.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import socket
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import trio

from ottla.server.network.network import SYSTEMS_BUFFERS, SocketBuffers
from ottla.simulation.harness.alarms import Alarm

if TYPE_CHECKING:
    import ssl

    from ottla.kproto.codec import Buffer

__all__ = ["Host", "Network", "Stack"]

_SYN_RETRIES_S = (0.5, 1.0, 2.0, 4.0, 8.0)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Watcher(Protocol):
    """What waits for several connections at once, as Linux's epoll does."""

    alarm: Alarm

    def room_came(self, descriptor: int) -> None:
        """The peer of an end has taken something."""

    async def wait(self) -> None: ...


class Network:
    """All hosts, and how it is between them."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.hosts: dict[str, Host] = {}
        self.latency_s = rng.choice((0.0001, 0.001, 0.005))
        self.window_bytes = rng.choice((4_000, 64_000, 1_000_000))
        #: Whether the machines have epoll, as Linux does; without it each connection waits by itself.
        self.has_epoll = rng.random() < 0.8
        self.epolls: dict[int, Watcher] = {}
        #: The ends of connections by their descriptors.
        self.ends: dict[int, _End] = {}
        self._descriptors = itertools.count(3)
        #: How many bytes were sent: the same in each run of a seed.
        self.sent_bytes = 0
        #: How often something was sent.
        self.sends = 0
        self._blocked: set[tuple[str, str]] = set()
        self._delays_s: dict[tuple[str, str], float] = {}
        self._pipes: dict[_Pipe, None] = {}

    def host(self, address: str) -> Host:
        """The host of an address; made when it is first asked for."""
        found = self.hosts.get(address)
        if found is None:
            found = self.hosts[address] = Host(self, address)
        return found

    def next_descriptor(self) -> int:
        return next(self._descriptors)

    def block(self, source: str, target: str) -> None:
        """Let nothing through from one host to another."""
        self._blocked.add((source, target))

    def delay(self, source: str, target: str, seconds: float) -> None:
        """Let what is sent from one host to another take up to this much longer."""
        self._delays_s[source, target] = seconds

    def heal(self) -> None:
        """All hosts reach each other again."""
        self._blocked.clear()
        self._delays_s.clear()
        for pipe in list(self._pipes):
            pipe.reopened()

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def flight_s(self, source: str, target: str) -> float:
        """How long the next bytes take."""
        longer_s = self._delays_s.get((source, target), 0.0)
        return self.latency_s * self.rng.uniform(0.5, 2) + (longer_s * self.rng.random() if longer_s else 0.0)

    def reset_some(self, count: int) -> int:
        """End some connections between hosts in the middle of whatever they do. Returns how many."""
        ends = [pipe.source for pipe in self._pipes if not pipe.source.is_over]
        chosen = self.rng.sample(ends, min(count, len(ends)))
        for end in chosen:
            end.reset()
            end.peer.reset()
        return len(chosen)


class Host:
    """A machine's side of the network. It outlives the processes, each of which has a `Stack`."""

    def __init__(self, network: Network, address: str) -> None:
        self.network = network
        self.address = address
        self.is_up = True
        self.listening: dict[int, _Listening] = {}
        self.ends: dict[_End, None] = {}
        self._next_port = 30_000

    def stack(self) -> Stack:
        """What a new process has of the network."""
        return Stack(self)

    @property
    def is_unread(self) -> bool:
        """Whether a peer has not taken what was sent to it, and there is no room for more."""
        return any(end.outgoing.size_bytes >= self.network.window_bytes for end in self.ends)

    def next_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def process_died(self) -> None:
        """The machine closes what the process had."""
        for listening in list(self.listening.values()):
            listening.close()
        for end in list(self.ends):
            end.abandon(says_so=True)

    def went_down(self) -> None:
        """The machine is off, and nobody is told."""
        self.is_up = False
        self.listening.clear()
        for end in list(self.ends):
            end.abandon(says_so=False)

    def came_up(self) -> None:
        """The machine is on, but knows nothing of the connections that it had; a peer that sends on one is told."""
        self.is_up = True
        for pipe in list(self.network._pipes):
            pipe.reopened()


class Stack:
    """`ottla.server.network.network.Network` for one process on a host. It is of no use when the process is dead."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.is_dead = False

    def listen(
        self, host: str, port: int, backlog: int, flag: str, *, buffers: SocketBuffers = SYSTEMS_BUFFERS
    ) -> _Listening:
        del host, backlog, flag, buffers
        if self.is_dead:
            raise _error(errno.ENETDOWN)
        assert port not in self._host.listening
        listening = self._host.listening[port] = _Listening(self._host, port)
        return listening

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        mine, network = self._host, self._host.network
        there = network.host(host)
        for pause_s in _SYN_RETRIES_S:
            await trio.sleep(network.flight_s(mine.address, host))
            if self.is_dead:
                raise _error(errno.ENETDOWN)
            is_lost = network.is_blocked(mine.address, host) or network.is_blocked(host, mine.address)
            if there.is_up and not is_lost:
                listening = there.listening.get(port)
                if listening is None:
                    raise _error(errno.ECONNREFUSED)
                end = listening.come(mine)
                await trio.sleep(network.flight_s(host, mine.address))
                return end
            await trio.sleep(pause_s)
        raise _error(errno.ETIMEDOUT)

    async def look_up(self, host: str) -> set[str]:
        return {host}


class _Listening:
    """See `ottla.server.network.network.Listening`."""

    def __init__(self, host: Host, port: int) -> None:
        self._host = host
        self.port = port
        self._come: deque[_End] = deque()
        self._bell = trio.lowlevel.ParkingLot()

    def come(self, client: Host) -> _End:
        """A connection from another host; returns the client's end."""
        network = self._host.network
        ends = _End(client, client.next_port()), _End(self._host, self.port)
        ends[0].join(ends[1], network)
        self._come.append(ends[1])
        self._bell.unpark_all()
        return ends[0]

    async def wait(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._come:
            await self._bell.park()

    def accept(self) -> tuple[_End, tuple[str, int]]:
        if not self._come:
            raise BlockingIOError
        end = self._come.popleft()
        return end, (end.peer.host.address, end.peer.port)

    def close(self) -> None:
        if self._host.listening.get(self.port) is self:
            del self._host.listening[self.port]
        while self._come:
            self._come.popleft().reset_both()


class _Pipe:
    """One direction of a connection."""

    __slots__ = ("_hosts", "_last_s", "chunks", "has_end", "network", "size_bytes", "source", "target")

    def __init__(self, network: Network, source: _End, target: _End) -> None:
        self.network = network
        self.source = source
        self.target = target
        self._hosts = (source.host.address, target.host.address)
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.size_bytes = 0
        self.has_end = False
        self._last_s = 0.0

    def put(self, data: bytes) -> None:
        """Bytes, or none of them for the end."""
        self._last_s = max(self._last_s, trio.current_time() + self.network.flight_s(*self._hosts))
        self.chunks.append((self._last_s, data))
        self.size_bytes += len(data)
        self.network.sent_bytes += len(data)
        self.network.sends += 1
        if self.target.is_gone:
            self._answer_for_the_gone()
        else:
            self.target.expect(self.ready_at())

    def ready_at(self) -> float:
        """When the first chunk is there."""
        if not self.chunks or self.is_blocked:
            return math.inf
        return self.chunks[0][0]

    @property
    def is_blocked(self) -> bool:
        return self._hosts in self.network._blocked

    def reopened(self) -> None:
        """What was held back arrives after all: it is sent again a moment later."""
        if self.target.is_gone:
            if self.chunks:
                self._answer_for_the_gone()
            return
        if self.chunks and self.chunks[0][0] <= trio.current_time():
            late_s = trio.current_time() + self.network.rng.uniform(0.01, 0.3)
            self.chunks = deque((max(at, late_s), data) for at, data in self.chunks)
            self._last_s = max(self._last_s, late_s)
        self.target.expect(self.ready_at())

    def drop(self) -> None:
        """Nobody will read what is under way."""
        self.chunks.clear()
        self.size_bytes = 0

    def _answer_for_the_gone(self) -> None:
        """The machine is there, and knows nothing of this connection."""
        if self.target.host.is_up and not self.is_blocked:
            self.source.reset()


class _End(trio.abc.Stream):
    """One end of a connection, for a server (`Accepted`, `Transport`) and for a client (a stream of Trio)."""

    def __init__(self, host: Host, port: int) -> None:
        self.host = host
        self.port = port
        self.peer: _End
        self.incoming: _Pipe
        self.outgoing: _Pipe
        #: Its process has closed it or is dead: nobody reads here any more.
        self.is_gone = False
        self.descriptor = host.network.next_descriptor()
        self.watched_by: Watcher | None = None
        self._is_reset = False
        self._is_read_shut = False
        self._reading = Alarm()
        self._writing = trio.lowlevel.ParkingLot()
        host.ends[self] = None
        host.network.ends[self.descriptor] = self

    def join(self, peer: _End, network: Network) -> None:
        self.peer, peer.peer = peer, self
        self.outgoing = peer.incoming = _Pipe(network, self, peer)
        self.incoming = peer.outgoing = _Pipe(network, peer, self)
        network._pipes[self.outgoing] = network._pipes[self.incoming] = None

    # What happens to it.

    @property
    def is_over(self) -> bool:
        return self.is_gone or self._is_reset

    def expect(self, at: float) -> None:
        """Bytes will be there at a time."""
        self._reading.bring_forward(at)
        if self.watched_by is not None:
            self.watched_by.alarm.bring_forward(at)

    def reset(self) -> None:
        """The peer, or who speaks for it, says that the connection is no more."""
        if not self._is_reset:
            self._is_reset = True
            self.incoming.drop()
            self._wake()
            self._forget()

    def reset_both(self) -> None:
        self.abandon(says_so=True)
        self.peer.reset()

    def abandon(self, *, says_so: bool) -> None:
        """Nobody has this end any more. A machine that is up says so to the peer."""
        if self.is_gone:
            return
        self.is_gone = True
        del self.host.network.ends[self.descriptor]
        self._wake()
        if says_so and not self._is_reset:
            self._end_output()
            if self.incoming.chunks:
                self.incoming._answer_for_the_gone()
        self._forget()

    def _end_output(self) -> None:
        if not self.outgoing.has_end:
            self.outgoing.has_end = True
            self.outgoing.put(b"")

    def _wake(self) -> None:
        self._reading.ring()
        if self.watched_by is not None:
            self.watched_by.alarm.ring()
        self._writing.unpark_all()

    def _forget(self) -> None:
        self.host.ends.pop(self, None)
        if self.is_over and self.peer.is_over:
            for pipe in (self.incoming, self.outgoing):
                self.host.network._pipes.pop(pipe, None)

    # As a server's.

    def open(self, tls: ssl.SSLContext | None) -> _End:
        assert tls is None
        return self

    async def handshake(self) -> None:
        """Nothing is encrypted."""

    @property
    def peer_subject(self) -> Any:
        return None

    def readable_at(self) -> float:
        """When there is something to receive, or to be told."""
        return -math.inf if self.is_over or self._is_read_shut else self.incoming.ready_at()

    def receive_into(self, buffer: memoryview) -> int:
        data = self._receive(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _receive(self, limit: int) -> bytes:
        if self.is_gone:
            raise _error(errno.EBADF)
        pipe = self.incoming
        if pipe.ready_at() > trio.current_time():
            if self._is_reset:
                raise _error(errno.ECONNRESET)
            if self._is_read_shut:
                return b""
            raise BlockingIOError
        at, chunk = pipe.chunks[0]
        if not chunk:
            return b""
        if len(chunk) <= limit:
            pipe.chunks.popleft()
            data = chunk
        else:
            pipe.chunks[0] = at, chunk[limit:]
            data = chunk[:limit]
        pipe.size_bytes -= len(data)
        self.peer._writing.unpark_all()
        if self.peer.watched_by is not None:
            self.peer.watched_by.room_came(self.peer.descriptor)
        return data

    def send(self, views: Sequence[Buffer]) -> int:
        if self._is_reset:
            raise _error(errno.ECONNRESET)
        if self.is_gone or self.outgoing.has_end:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = self.host.network.window_bytes - self.outgoing.size_bytes
        if room <= 0:
            raise BlockingIOError
        data = b"".join(views)[:room]
        if data:
            self.outgoing.put(data)
        return len(data)

    @property
    def files(self) -> None:
        """Its disks have no files that the kernel could send."""
        return None

    async def wait_readable(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while (at := self.readable_at()) > trio.current_time():
            await self._reading.wait(at)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.has_room:
            await self._writing.park()

    @property
    def has_room(self) -> bool:
        """Whether some of what is sent would be taken, or refused, at once."""
        return self.is_over or self.outgoing.has_end or self.outgoing.size_bytes < self.host.network.window_bytes

    @property
    def has_lost_peer(self) -> bool:
        chunks = self.incoming.chunks
        has_end = bool(chunks) and not chunks[-1][1] and chunks[-1][0] <= trio.current_time()
        return self.is_over or has_end

    def shut_down(self, how: int) -> None:
        self._is_read_shut = True
        if how == socket.SHUT_RDWR and not self.is_over:
            self._end_output()
        self._wake()

    def close(self) -> None:
        self.abandon(says_so=True)

    # As a client's.

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.send([rest]) :]
            except BlockingIOError:
                await self.wait_writable()
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def wait_send_all_might_not_block(self) -> None:
        await self.wait_writable()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if self.readable_at() > trio.current_time():
            await self.wait_readable()
        try:
            return self._receive(max_bytes or 65536)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()
