"""What a small request costs the broker, in echoes: how often a server on Trio could have sent the same bytes back.

    python -m benchmarks.echoes [--rounds 5] [--seconds 2] [--connections 1 10] [--broker PROGRAM]

Each round measures the echo and each request in turn, on one broker, by the CPU time of the serving process. Figures
are the least over the rounds: what else runs on a machine only ever adds to them, as it takes the caches away. In
echoes they say what the broker adds to what any server on Trio would pay. `--broker` names the `ottla` of another
checkout.

The echo is `trio.serve_tcp` with `receive_some` and `send_all`, as Trio's tutorial has it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import requests
from benchmarks.figures import shown
from benchmarks.process_cost import cost
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
from compat_tests.ottla_broker import OttlaBroker

REQUESTS: Final = {
    "ListOffsets": list_offsets,
    "Metadata": metadata,
    "empty Fetch": empty_fetch,
    "OffsetCommit": offset_commit,
    "Produce, one record of 100 B": one_record,
}
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


def cpu_us(pid: int, address: str, frames: list[bytes], connections: int, seconds: int) -> float:
    """The CPU that a process spends on one request, in µs."""
    before = cost(pid).cpu_s
    measured = requests.run(address, frames, connections=connections, seconds=seconds)
    return (cost(pid).cpu_s - before) * 1e6 / int(measured["answered"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each measurement")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--broker", help="the program `ottla` of another checkout")
    arguments = parser.parse_args()
    requests.build()
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder), arguments.broker) as broker, echo() as server:
        load_groups(broker)
        frames = {}
        for topic, (what, build) in enumerate(REQUESTS.items()):
            create_topic(broker, f"topic-{topic}", 10)
            frames[what] = [frame(*build(f"topic-{topic}", number)) for number in range(10)]
        for each in frames.values():
            requests.run(broker.bootstrap, each, connections=10, seconds=1)
        for connections in arguments.connections:
            costs: dict[str, list[float]] = {what: [] for what in ("echo", *REQUESTS)}
            for _ in range(arguments.rounds):
                some = frames["ListOffsets"]
                costs["echo"].append(cpu_us(*server, some, connections, arguments.seconds))
                for what, each in frames.items():
                    costs[what].append(cpu_us(broker.pid, broker.bootstrap, each, connections, arguments.seconds))
            print(f"\n| {connections} connection{'s' * (connections > 1)} | CPU, µs | echoes |\n|---|---:|---:|")
            for what, measured in costs.items():
                print(f"| {what} | {shown(min(measured))} | {min(measured) / min(costs['echo']):.2f} |", flush=True)


if __name__ == "__main__":
    main()
