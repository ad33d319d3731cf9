"""What a request costs the broker in bytecodes and in calls of functions in Python.

    python -m benchmarks.bytecodes              # all kinds of requests
    python -m benchmarks.bytecodes fetch commit # some of them

They are counted in the event loop's thread of a node in this process, Trio included, while a client in another thread
asks. So the figures hardly depend on the machine and on what else it does: two revisions can be compared within half a
percent. They say nothing of the kernel and of what C does. "Alone" is one connection with one request under way,
"in a crowd" forty that are served in one turn, "ahead" one with five under way.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median
from types import FrameType
from typing import Any, Final, NamedTuple

import trio

from benchmarks.workloads.requests import group_of, list_offsets, offset_commit, one_record, produce
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.records import Record, build_batch
from ottla.kproto.schema import Request
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.runtime.purgatory import Purgatory
from ottla.server.main import Node
from ottla.server.network import readiness
from ottla.settings.config import BrokerConfig

_TOPIC: Final = "t"
_ROUNDS: Final = 5
_CROWD: Final = 40
_AHEAD: Final = 5
_CONSUMERS: Final = 10


class Counts:
    """What the thread that has called `begin` has executed since."""

    def __init__(self) -> None:
        self.bytecodes = self.calls = 0

    def begin(self) -> None:
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            self.calls += 1
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            self.bytecodes += 1
        return self._trace


class Client:
    """A connection that sends prepared frames."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        return self._answers.read(int.from_bytes(self._answers.read(4), "big"))

    def call(self, request: Request, version: int) -> Any:
        self.send(_frame(request, version))
        return parse_response_frame(request.API_KEY, version, self.receive())[1]

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class Asked(NamedTuple):
    """One kind of requests: what is sent, from how many connections, and how many each has under way."""

    frame: bytes
    connections: int = 1
    ahead: int = 1
    rounds: int = 40


def _frame(request: Request, version: int) -> bytes:
    return build_request_frame(request, version, 1, "bytecodes")


def _large() -> bytes:
    data = PartitionProduceData(index=0, records=build_batch([Record(value=b"v" * 1_000) for _ in range(300)]))
    topics = [TopicProduceData(name=_TOPIC, partition_data=[data])]
    return _frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 9)


_SMALL: Final = _frame(*one_record(_TOPIC, 0))
_16_KB: Final = _frame(*produce(_TOPIC, 0))
_COMMIT: Final = _frame(*offset_commit(_TOPIC, 0))
_LIST: Final = _frame(*list_offsets(_TOPIC, 0))

ASKED: Final = {
    "produce of 100 B, alone": Asked(_SMALL),
    "produce of 100 B, in a crowd": Asked(_SMALL, _CROWD, rounds=5),
    "produce of 100 B, ahead": Asked(_SMALL, ahead=_AHEAD, rounds=20),
    "produce of 16 KB, alone": Asked(_16_KB),
    "produce of 16 KB, in a crowd": Asked(_16_KB, 10, rounds=20),
    "produce of 300 KB, alone": Asked(_large(), rounds=20),
    "produce of 300 KB, ahead": Asked(_large(), ahead=_AHEAD, rounds=8),
    "commit, alone": Asked(_COMMIT),
    "commit, in a crowd": Asked(_COMMIT, _CROWD, rounds=5),
    "list offsets, alone": Asked(_LIST),
    "list offsets, in a crowd": Asked(_LIST, _CROWD, rounds=5),
}
FETCHES: Final = {"fetch that waits, alone": 1, "fetch that waits, with nine others": _CONSUMERS}


class Measurement:
    """The client's side, in a thread of its own."""

    def __init__(self, port: int, counts: Counts, token: trio.lowlevel.TrioToken, purgatory: Purgatory) -> None:
        self._port = port
        self._counts = counts
        self._token = token
        self._purgatory = purgatory

    def run(self, words: list[str]) -> None:
        await_coordinator(self._port)
        print(f"{'':36}{'bytecodes':>12}{'calls':>8}")
        for name, asked in ASKED.items():
            if any(word in name for word in words):
                self._show(name, self._ask(asked))
        for name, consumers in FETCHES.items():
            if any(word in name for word in words):
                self._show(name, self._fetch(consumers))

    def _show(self, name: str, costs: list[tuple[float, float]]) -> None:
        bytecodes, calls = (median(each) for each in zip(*costs, strict=True))
        print(f"{name:36}{bytecodes:12,.0f}{calls:8.1f}", flush=True)

    def _cost(self, work: Callable[[], int]) -> tuple[float, float]:
        """Of each request, of which `work` returns the number."""
        before = self._counts.bytecodes, self._counts.calls
        count = work()
        return (self._counts.bytecodes - before[0]) / count, (self._counts.calls - before[1]) / count

    def _ask(self, asked: Asked) -> list[tuple[float, float]]:
        clients = [Client(self._port) for _ in range(asked.connections)]
        frame = asked.frame

        def work() -> int:
            for _ in range(asked.rounds):
                if asked.ahead > 1:
                    _send_ahead(clients[0], frame, asked.ahead)
                else:
                    self._send_together(clients, frame)
            return asked.rounds * asked.connections * asked.ahead

        work()
        costs = [self._cost(work) for _ in range(_ROUNDS)]
        for client in clients:
            client.close()
        return costs

    def _send_together(self, clients: list[Client], frame: bytes) -> None:
        """Requests that are all there when the first of them is served."""
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            go_on.wait()

        if len(clients) > 1:
            self._token.run_sync_soon(hold)
            held.wait()
        for client in clients:
            client.send(frame)
        go_on.set()
        for client in clients:
            client.receive()

    def _fetch(self, consumers: int) -> list[tuple[float, float]]:
        """Consumers at the end of the log, and a producer that writes a record for them all; its part is included."""
        producer = Client(self._port)
        clients = [Client(self._port) for _ in range(consumers)]
        rounds = 10
        offset = producer.call(*list_offsets(_TOPIC, 0)).topics[0].partitions[0].offset

        def work() -> int:
            nonlocal offset
            for _ in range(rounds):
                for client in clients:
                    client.send(_frame(_fetch_from(offset), 11))
                while self._purgatory.watching < consumers:
                    time.sleep(0.001)
                producer.send(_SMALL)
                producer.receive()
                offset += 1
                for client in clients:
                    client.receive()
            return rounds * consumers

        work()
        costs = [self._cost(work) for _ in range(_ROUNDS)]
        for client in (producer, *clients):
            client.close()
        return costs


def await_coordinator(port: int) -> None:
    """Return once the node coordinates groups."""
    with closing(Client(port)) as client:
        while client.call(FindCoordinatorRequest(coordinator_keys=[group_of(0)]), 4).coordinators[0].error_code:
            time.sleep(0.05)


def _send_ahead(client: Client, frame: bytes, count: int) -> None:
    for _ in range(count):
        client.send(frame)
    for _ in range(count):
        client.receive()


def _fetch_from(offset: int) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=_TOPIC, partitions=[asked])],
    )


async def serve(folder: str, measure: Callable[[int, trio.lowlevel.TrioToken, Purgatory], None]) -> None:
    """Have a node measured, from another thread: its port, its event loop, and where its fetches wait."""
    # However slow it is while it is counted, a turn takes as many requests as it would otherwise.
    readiness.TURN_SECONDS = 10.0  # type: ignore[misc]
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": folder, "offsets.topic.num.partitions": "1"}
    node = Node(BrokerConfig(settings))
    async with trio.open_nursery() as nursery:
        ready = await nursery.start(node.serve)
        await ready.broker.controller.create_topic(NewTopic(_TOPIC, 1, 1))
        purgatory = ready.broker.replica_manager.fetch_purgatory
        token = trio.lowlevel.current_trio_token()
        await trio.to_thread.run_sync(measure, ready.endpoints[0].port, token, purgatory)
        node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bytecodes", description=__doc__)
    parser.add_argument("words", nargs="*", default=[""], help="only what has one of these in its name")
    arguments = parser.parse_args()
    counts = Counts()
    counts.begin()

    def measure(port: int, token: trio.lowlevel.TrioToken, purgatory: Purgatory) -> None:
        Measurement(port, counts, token, purgatory).run(arguments.words)

    with tempfile.TemporaryDirectory() as folder:
        trio.run(serve, folder, measure)


if __name__ == "__main__":
    main()
