"""What a small request costs the broker, in echoes: how often a server on Trio could have sent the same bytes back.

    python -m benchmarks.echoes [--rounds 40] [--connections 1 10] [--broker PROGRAM] [--against PROGRAM]

Figures are CPU time of the serving process. Each round measures the echo and a request right after one another, for a
twentieth of a second each, so that what else runs on the machine hits both alike. The CPU time is that of the best
fifth of the rounds, as what else runs only ever adds to it; echoes are medians of the rounds' ratios, and say what the
broker adds to what any server on Trio would pay. `--broker` names the `ottla` of another checkout. `--against` names
one more, which is measured in the same rounds; the broker is then also shown as a multiple of it.

The echo is `trio.serve_tcp` with `receive_some` and `send_all`, as Trio's tutorial has it.
"""

from __future__ import annotations

import argparse
import random
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Final

from benchmarks.measuring.process_cost import threads_cpu_s
from benchmarks.reporting.figures import shown
from benchmarks.workloads.base import create_topic
from benchmarks.workloads.requests import (
    empty_fetch,
    frame,
    list_offsets,
    load_groups,
    metadata,
    offset_commit,
    one_record,
)
from compat_tests.brokers.ottla_broker import OttlaBroker
from ottla.client.addresses import parse_address
from ottla.kproto.framing import PREFIX_SIZE

REQUESTS: Final = {
    "ListOffsets": list_offsets,
    "Metadata": metadata,
    "empty Fetch": empty_fetch,
    "OffsetCommit": offset_commit,
    "Produce, one record of 100 B": one_record,
}
_FRAMES: Final = 10
_SLICE_SECONDS: Final = 0.05
_WARM_UP_SLICES: Final = 20
_RECEIVE_BYTES: Final = 65_536
_ECHO: Final = """
import sys, trio
async def echo(stream):
    try:
        while data := await stream.receive_some(65536):
            await stream.send_all(data)
    except trio.BrokenResourceError:
        await stream.aclose()
async def main():
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listener.socket.getsockname()[1], flush=True)
    await trio.serve_listeners(echo, [listener])
trio.run(main)
"""


class Broker(OttlaBroker):
    """The broker of this checkout, or of another one."""

    def __init__(self, folder: Path, program: str | None) -> None:
        super().__init__(folder)
        self._program = program

    def command(self) -> list[str]:
        ours, *words = super().command()
        return [self._program or ours, *words]


@contextmanager
def echo() -> Iterator[tuple[int, str]]:
    """The echo as a process: its id and address."""
    process = subprocess.Popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.pid, f"127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.communicate()


class Server:
    """What is measured: a process, and its connections, each of which has one request under way."""

    def __init__(self, pid: int, address: str) -> None:
        self._pid = pid
        self._address = parse_address(address)

    def cpu_us(self, frames: list[bytes], connections: int) -> float:
        """The CPU that the process spends on one request, in µs."""
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(self._address)) for _ in range(connections)]
            pairs = [(client, frames[number % len(frames)]) for number, client in enumerate(clients)]
            exchange(pairs)
            before, count, until = threads_cpu_s(self._pid), 0, perf_counter() + _SLICE_SECONDS
            while perf_counter() < until:
                exchange(pairs)
                count += connections
            return (threads_cpu_s(self._pid) - before) * 1e6 / count


def exchange(pairs: list[tuple[socket.socket, bytes]]) -> None:
    """Send a request over each connection, then receive all answers."""
    for client, request in pairs:
        client.sendall(request)
    for client, _ in pairs:
        answer = client.recv(_RECEIVE_BYTES)
        missing = PREFIX_SIZE + int.from_bytes(answer[:PREFIX_SIZE], "big") - len(answer)
        while missing > 0:
            missing -= len(client.recv(missing))


def warmed(broker: Broker) -> Server:
    """A broker that has topics and groups, and has answered requests of each kind for a while."""
    load_groups(broker)
    server = Server(broker.pid, broker.bootstrap)
    for what in REQUESTS:
        create_topic(broker, what.partition(",")[0].replace(" ", "-"), _FRAMES)
        for _ in range(_WARM_UP_SLICES):
            server.cpu_us(frames_of(what), _FRAMES)
    return server


def frames_of(what: str) -> list[bytes]:
    """One request of a kind for each of its topic's partitions."""
    topic = what.partition(",")[0].replace(" ", "-")
    return [frame(*REQUESTS[what](topic, partition)) for partition in range(_FRAMES)]


def measure(servers: dict[str, Server], what: str, connections: int, rounds: int) -> str:
    """The row of one kind of request."""
    frames = frames_of(what)
    costs: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name in random.sample(list(servers), len(servers)):
            costs[name].append(servers[name].cpu_us(frames, connections))

    def ratio(name: str, to: str) -> float:
        return median(one / other for one, other in zip(costs[name], costs[to], strict=True))

    names = [name for name in servers if name != "echo"]
    cells = [f"{shown(quantiles(costs[name], n=5)[0])} | {ratio(name, 'echo'):.2f}" for name in names]
    if len(names) > 1:
        cells.append(f"{ratio(*names):.2f}")
    return f"| {what} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--broker", help="the program `ottla` of another checkout")
    parser.add_argument("--against", help="the program `ottla` of a checkout to compare with")
    arguments = parser.parse_args()
    programs = {"broker": arguments.broker} | ({"against": arguments.against} if arguments.against else {})
    with ExitStack() as stack:
        servers = {}
        for name, program in programs.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers[name] = warmed(stack.enter_context(Broker(folder, program)))
        servers["echo"] = Server(*stack.enter_context(echo()))
        for connections in arguments.connections:
            heads = [f"{name}, µs | echoes" for name in programs] + ["ratio"] * (len(programs) > 1)
            print(f"\n| {connections} connection{'s' * (connections > 1)} | {' | '.join(heads)} |")
            print("|---" + "|---:" * (2 * len(programs) + (len(programs) > 1)) + "|")
            for what in REQUESTS:
                print(measure(servers, what, connections, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
