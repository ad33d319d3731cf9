"""What small requests cost the broker, Apache Kafka, and the least that any server in Python could do for them.

    python -m benchmarks.floor [--rounds 5] [--connections 1 10 300] [--only "100 B"] [--without-kafka]
                               [--against PROGRAM]

Each connection has one request under way, from the generator in `benchmarks/requests`. All servers run the whole time,
and each is asked for a second, in turn. CPU is that of the serving process, from /proc, for a request. The "floor" is
`benchmarks.measuring.bare_loop`: a loop on epoll that receives as many bytes, writes as many to a file and sends as
many back, and does nothing else. "kernel" is the part of the CPU that was spent in the kernel; the rest is the
interpreter's, of Kafka the JVM's. `--against` names the `ottla` of another checkout, which takes its turn as well.
Figures are medians of the rounds, ratios medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks import requests
from benchmarks.echoes import Broker
from benchmarks.measuring.brokers import fresh
from benchmarks.measuring.process_cost import kernel_and_all_s, threads_cpu_s
from benchmarks.reporting.figures import shown
from benchmarks.workloads.base import create_topic
from benchmarks.workloads.requests import Build, frame, load_groups, offset_commit, one_record, produce
from compat_tests.brokers.process import BrokerProcess
from ottla.client.addresses import parse_address
from ottla.kproto.framing import PREFIX_SIZE


class Kind(NamedTuple):
    """One kind of request, and how many bytes of it a broker writes."""

    build: Build
    written_bytes: int


KINDS: Final = {
    "Produce of 100 B": Kind(one_record, 244),
    "Produce of 16 KB": Kind(produce, 16_300),
    "OffsetCommit": Kind(offset_commit, 200),
}
_FRAMES: Final = 10
_TOPIC: Final = "floor"
_FIRST_SECONDS: Final = 10
_WARM_UP_SECONDS: Final = 2
_SECONDS: Final = 1


class Slice(NamedTuple):
    """What a server did in one turn: requests a second, CPU in µs a request, the kernel's part of it."""

    requests_per_s: float
    cpu_us: float
    kernel: float


class Server(NamedTuple):
    """A process that answers requests."""

    pid: int
    bootstrap: str

    def measure(self, frames: list[bytes], connections: int, seconds: int = _SECONDS) -> Slice:
        cpu_s, (kernel_s, all_s) = threads_cpu_s(self.pid), kernel_and_all_s(self.pid)
        measured = requests.run(self.bootstrap, frames, connections=connections, seconds=seconds)
        cpu_s, (kernel_to_s, all_to_s) = threads_cpu_s(self.pid) - cpu_s, kernel_and_all_s(self.pid)
        kernel = (kernel_to_s - kernel_s) / max(all_to_s - all_s, 0.01)
        answered = measured["answered"]
        return Slice(answered / measured["seconds"], cpu_s * 1e6 / answered, kernel)


def served_by(broker: BrokerProcess) -> Server:
    """A broker that has the topic and the groups, and has been asked for a while: a JVM compiles what it runs often."""
    create_topic(broker, _TOPIC, _FRAMES)
    load_groups(broker)
    server = Server(broker.pid, broker.bootstrap)
    for kind in KINDS.values():
        server.measure(frames_of(kind), _FRAMES, _FIRST_SECONDS)
    return server


def frames_of(kind: Kind) -> list[bytes]:
    """One request for each of the topic's partitions."""
    return [frame(*kind.build(_TOPIC, number)) for number in range(_FRAMES)]


@contextmanager
def bare_loop(written_bytes: int, answer_bytes: int) -> Iterator[Server]:
    """The floor of a kind of request, as a process."""
    words = [sys.executable, "-m", "benchmarks.measuring.bare_loop"]
    with tempfile.TemporaryDirectory() as folder:
        numbers = map(str, (written_bytes, answer_bytes))
        process = subprocess.Popen([*words, f"{folder}/written", *numbers], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield Server(process.pid, f"127.0.0.1:{process.stdout.readline().strip()}")
        finally:
            process.kill()
            process.communicate()


def answer_bytes(server: Server, request: bytes) -> int:
    """How long the answer to a request is, without its length in front."""
    with socket.create_connection(parse_address(server.bootstrap)) as client, client.makefile("rb") as answers:
        client.sendall(request)
        return int.from_bytes(answers.read(PREFIX_SIZE), "big")


def row(what: str, connections: int, slices: dict[str, list[Slice]]) -> str:
    """One kind of request from so many connections, of all servers."""

    def ratio(figure: str, to: str) -> str:
        if to not in slices:
            return ""
        pairs = zip(slices["ottla"], slices[to], strict=True)
        return f"{median(getattr(ours, figure) / getattr(theirs, figure) for ours, theirs in pairs):.2f}"

    cells = []
    for name in slices:
        cells.append(shown(median(each.cpu_us for each in slices[name])))
        cells.append(f"{median(each.kernel for each in slices[name]):.0%}")
        cells.append(shown(median(each.requests_per_s for each in slices[name])))
    others = [name for name in slices if name != "ottla"]
    for name in others:
        cells += [ratio("cpu_us", name), ratio("requests_per_s", name)]
    return f"| {what}, {connections} connection{'s' * (connections > 1)} | {' | '.join(cells)} |"


def head(names: list[str]) -> str:
    """The table's first two lines."""
    cells = [f"{name}: CPU, µs | kernel | requests/s" for name in names]
    cells += [f"CPU to {name}'s | requests/s to {name}'s" for name in names if name != "ottla"]
    line = f"| | {' | '.join(cells)} |"
    return f"{line}\n|---{'|---:' * (line.count('|') - 2)}|"


def measure(brokers: dict[str, Server], what: str, connections: int, rounds: int) -> str:
    """The row of one kind."""
    kind = KINDS[what]
    frames = frames_of(kind)
    slices: defaultdict[str, list[Slice]] = defaultdict(list)
    with bare_loop(kind.written_bytes, answer_bytes(brokers["ottla"], frames[0])) as floor:
        servers = {**brokers, "floor": floor}
        for server in servers.values():
            server.measure(frames, connections, _WARM_UP_SECONDS)
        for number in range(rounds):
            for name in list(servers)[:: -1 if number % 2 else 1]:
                slices[name].append(servers[name].measure(frames, connections))
    return row(what, connections, {name: slices[name] for name in servers})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 10, 300])
    parser.add_argument("--only", nargs="+", default=[""], help="kinds of requests with one of these in the name")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--against", help="the program `ottla` of a checkout to compare with")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        programs = {"ottla": None} | ({"against": arguments.against} if arguments.against else {})
        brokers = {}
        for name, program in programs.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            brokers[name] = served_by(stack.enter_context(Broker(folder, program)))
        if not arguments.without_kafka:
            brokers["kafka"] = served_by(stack.enter_context(fresh("kafka")))
        print(head([*brokers, "floor"]), flush=True)
        for what in KINDS:
            if any(word in what for word in arguments.only):
                for connections in arguments.connections:
                    print(measure(brokers, what, connections, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
