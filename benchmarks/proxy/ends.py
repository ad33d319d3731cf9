"""What the proxy adds between two ends that do next to nothing, to compare two checkouts of it on a busy machine.

    python -m benchmarks.proxy.ends [--rounds 5] [--seconds 1] [--other PROGRAM] [--send-buffer BYTES]

The upper end answers each Fetch with the same bytes by sendfile, and takes what is produced; the lower one sends a
request and reads its answer (4 MB, or 200 bytes), or keeps four Produce requests of 1 MB under way. Directly, and
through the proxy of this checkout, and of the one whose `ottla` is named, in turn. `--send-buffer` is the upper end's,
like Kafka's `socket.send.buffer.bytes`; without it Linux chooses. Printed are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from benchmarks.measuring.process_cost import cost
from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.kproto.schema import Response

_FETCH_VERSION: Final = 16
_PRODUCE_VERSION: Final = 11
_LARGE_BYTES: Final = 1_000_000
_SMALL_BYTES: Final = 40
_PARTITIONS: Final = 4
_UNDER_WAY: Final = 4

Figures = dict[str, float]


def _frame(response: Response, key: ApiKey, version: int) -> bytes:
    """An answer to request 1."""
    body = b"".join(map(bytes, codec.build_parts(response, version)))
    head = headers.build_response_header(key, version, 1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def _fetched(record_bytes: int) -> bytes:
    partitions = [PartitionData(partition_index=index, records=bytes(record_bytes)) for index in range(_PARTITIONS)]
    topic = FetchableTopicResponse(topic_id=UUID(int=1), partitions=partitions)
    return _frame(FetchResponse(responses=[topic]), ApiKey.FETCH, _FETCH_VERSION)


class _Upper:
    """The end in place of a broker, in a process of its own. Fetches with `min_bytes` 1 get the large answer."""

    def __init__(self, send_buffer_bytes: int) -> None:
        self._send_buffer_bytes = send_buffer_bytes
        self._small = _fetched(_SMALL_BYTES)
        self._produced = _frame(ProduceResponse(), ApiKey.PRODUCE, _PRODUCE_VERSION)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._file.write(_fetched(_LARGE_BYTES))
        self._file.flush()

    def run(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        while True:
            threading.Thread(target=self._serve, args=(listening.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._send_buffer_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        room = memoryview(bytearray(_LARGE_BYTES))
        with client:
            while head := _receive(client, room, 8):
                size_bytes, key, _ = struct.unpack(">ihh", head)
                last = _receive(client, room, size_bytes - 4)
                if key == ApiKey.PRODUCE:
                    client.sendall(self._produced)
                elif key != ApiKey.FETCH:
                    return  # the proxy asks for the brokers: there are none
                elif b"large" in last:
                    self._send_large(client)
                else:
                    client.sendall(self._small)

    def _send_large(self, client: socket.socket) -> None:
        size_bytes, sent = os.fstat(self._file.fileno()).st_size, 0
        writable = select.poll()
        writable.register(client, select.POLLOUT)
        client.setblocking(False)
        while sent < size_bytes:
            try:
                sent += os.sendfile(client.fileno(), self._file.fileno(), sent, size_bytes - sent)
            except BlockingIOError:
                writable.poll()
        client.setblocking(True)


def _receive(source: socket.socket, room: memoryview, size_bytes: int) -> bytes:
    """Receive so much; the first bytes of the last piece, none at the end of the stream."""
    count = 0
    while size_bytes:
        count = source.recv_into(room[: min(size_bytes, len(room))])
        if not count:
            return b""
        size_bytes -= count
    return bytes(room[: min(count, 100)])


def _fetch(port: int, seconds: float, client_id: str) -> Figures:
    request = bytes(build_request_frame(FetchRequest(max_wait_ms=0), _FETCH_VERSION, 1, client_id))
    return _exchange(port, seconds, request, under_way=1)


def _produce(port: int, seconds: float) -> Figures:
    partition = PartitionProduceData(index=0, records=bytes(_LARGE_BYTES))
    produce = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    request = bytes(build_request_frame(produce, _PRODUCE_VERSION, 1, "c"))
    return _exchange(port, seconds, request, under_way=_UNDER_WAY)


def _exchange(port: int, seconds: float, request: bytes, *, under_way: int) -> Figures:
    """Send the request again and again for this long, with this many under way."""
    room = memoryview(bytearray(1 << 20))
    waits: list[float] = []
    moved_bytes = waiting = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = now = time.perf_counter()
        while waiting or now - began < seconds:
            if now - began < seconds and waiting < under_way:
                connection.sendall(request)
                waiting += 1
                if waiting < under_way:
                    continue
            (size_bytes,) = struct.unpack(">i", _receive(connection, room, 4))
            assert _receive(connection, room, size_bytes)
            waiting -= 1
            moved_bytes += size_bytes + len(request)
            waits.append(time.perf_counter() - now)
            now = time.perf_counter()
    return {"gigabytes": moved_bytes / 1e9, "requests": len(waits), "seconds": now - began, "p50": _median(waits)}


def _median(values: list[float]) -> float:
    return statistics.median(values)


@contextmanager
def _started(command: list[str], port: Callable[[str], int]) -> Iterator[tuple[int, int]]:
    """A process, by its id and the port that its first line says."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.pid, port(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _proxy(program: str, upstream: int) -> Iterator[tuple[int, int]]:
    command = [program, "proxy", "--upstream", f"127.0.0.1:{upstream}", "--listen", "127.0.0.1:0"]
    with _started(command, lambda line: int(json.loads(line)["port"])) as found:
        yield found


LOADS: Final[dict[str, Callable[[int, float], Figures]]] = {
    "consume": lambda port, seconds: _fetch(port, seconds, "large"),
    "produce": _produce,
    "small": lambda port, seconds: _fetch(port, seconds, "c"),
}


def _measure(ways: dict[str, tuple[int, int]], rounds: int, seconds: float) -> None:
    for name, load in LOADS.items():
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for number in range(rounds):
            for way in ways if number % 2 == 0 else reversed(ways):
                pid, port = ways[way]
                before = cost(pid).cpu_s
                seen = load(port, seconds)
                spent = cost(pid).cpu_s - before
                if name == "small":
                    found[way].append((seen["p50"] * 1e6, spent * 1e6 / seen["requests"]))
                else:
                    found[way].append((seen["gigabytes"] * 1e3 / seen["seconds"], spent / seen["gigabytes"]))
        units = ("p50, µs", "CPU, µs a request") if name == "small" else ("MB/s", "CPU, s/GB")
        print(f"\n| {name} | {units[0]} | {units[1]} |\n|---|---:|---:|")
        for way, runs in found.items():
            first, second = (_median([run[part] for run in runs]) for part in (0, 1))
            print(f"| {way} | {first:.0f} | {second:.3g} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each measurement takes")
    parser.add_argument("--other", help="the program `ottla` of another checkout")
    parser.add_argument("--send-buffer", type=int, default=0, help="bytes of the upper end's socket buffers")
    parser.add_argument("--upper", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.upper:
        _Upper(chosen.send_buffer).run()
        return
    upper = [sys.executable, "-m", "benchmarks.proxy.ends", "--upper", "--send-buffer", str(chosen.send_buffer)]
    ours = str(Path(sys.executable).parent / "ottla")
    with _started(upper, int) as direct, _proxy(ours, direct[1]) as proxy:
        ways = {"the upper end itself": direct, "this proxy": proxy}
        if chosen.other is None:
            _measure(ways, chosen.rounds, chosen.seconds)
            return
        with _proxy(chosen.other, direct[1]) as other:
            _measure(ways | {"the other proxy": other}, chosen.rounds, chosen.seconds)


if __name__ == "__main__":
    main()
