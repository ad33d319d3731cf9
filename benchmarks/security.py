"""What security costs: `python -m benchmarks.security [--pairs 3] [--records 300000] [--only tls|handshakes|acls]`.

- `tls`: records of 1 KB written and read over TLS 1.3, Ottla and Apache Kafka in turn; beside them in plain text.
- `handshakes`: new connections with TLS 1.3 a second, by eight threads that do nothing else, Ottla and Apache Kafka in
  turn; then 1,000 at once to Ottla, and the longest that its event loop was held meanwhile.
- `acls`: records of 1 KB in plain text to one Ottla with StandardAuthorizer and to one without, in turn.

Printed are medians, as tables. Each part takes less than five minutes with the default numbers on an idle machine.
Needs librdkafka's headers, and Java with `make jars` for Apache Kafka; certificates are of P-256.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks import librdkafka
from benchmarks.measuring.process_cost import cost
from benchmarks.measuring.profile import longest_hold
from benchmarks.workloads.base import PRODUCER, unique
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST, BrokerProcess, free_port
from compat_tests.java import missing
from ottla.security.certificates import issue, make_authority

_SIZE_BYTES: Final = 1_000
_PARTITIONS: Final = 4
_THREADS: Final = 8
_AT_ONCE: Final = 1_000
_AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:nobody-here",
    "allow.everyone.if.no.acl.found": "true",
}

Figures = dict[str, float]


class Certificates(NamedTuple):
    """Files that both brokers and librdkafka read."""

    ca: str
    keystore: str

    @property
    def context(self) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=self.ca)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        return made


class Way(NamedTuple):
    """A broker and how to reach it."""

    name: str
    broker: BrokerProcess
    port: int
    client: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def words(self) -> list[str]:
        return [f"{name}={value}" for name, value in self.client.items()]


def make_certificates(folder: Path) -> Certificates:
    authority = make_authority("CA of the benchmarks")
    broker = issue(authority, "broker", [HOST])
    ca, keystore = folder / "ca.pem", folder / "broker.pem"
    ca.write_bytes(authority.certificate)
    keystore.write_bytes(broker.key + broker.certificate)
    return Certificates(str(ca), str(keystore))


class TwoListeners(OttlaBroker):
    """Ottla with the listeners that the settings name."""

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :]


def _tls_settings(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "ssl.enabled.protocols": "TLSv1.3",
    }


@contextmanager
def both(folder: Path, certificates: Certificates, *, kafka: bool) -> Iterator[list[Way]]:
    """Ottla and, if it can be started, Apache Kafka, each with a plain and an encrypted listener."""
    encrypted = {"security.protocol": "SSL", "ssl.ca.location": certificates.ca}
    with ExitStack() as stack:
        ways = []
        for name in ("ottla", "kafka") if kafka else ("ottla",):
            plain_port, tls_port = free_port(), free_port()
            addresses = f"PLAINTEXT://{HOST}:{plain_port},SSL://{HOST}:{tls_port}"
            settings = _tls_settings(certificates) | {"listeners": addresses}
            broker: BrokerProcess
            if name == "ottla":
                broker = TwoListeners(folder / name, plain_port, overrides=settings)
            else:
                controller = f"CONTROLLER://{HOST}:{free_port()}"
                settings |= {
                    "listeners": f"{addresses},{controller}",
                    "advertised.listeners": addresses,
                    "controller.quorum.voters": f"1@{controller.partition('://')[2]}",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
                }
                broker = ApacheKafka(folder / name, plain_port, overrides=settings, heap_mb=1024)
            stack.enter_context(broker)
            ways.append(Way(f"{name} TLS 1.3", broker, tls_port, encrypted))
            ways.append(Way(f"{name} plain", broker, plain_port, {}))
        yield ways


def throughput(way: Way, records: int) -> Figures:
    """Write, then read all of it."""
    topic = unique("security")
    admin = AdminClient({"bootstrap.servers": way.bootstrap, **way.client, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, _PARTITIONS, 1)]).values():
        made.result(30)
    gigabytes = records * _SIZE_BYTES / 1e9
    where = (way.bootstrap, topic, _PARTITIONS, records)
    before = cost(way.broker.pid)
    produced = librdkafka.run("produce", *where, _SIZE_BYTES, "acks=1", *PRODUCER, *way.words)
    between = cost(way.broker.pid)
    consumed = librdkafka.run("consume", *where, *way.words)
    after = cost(way.broker.pid)
    return {
        "produce_mb_per_s": gigabytes * 1e3 / produced["seconds"],
        "produce_cpu_s_per_gb": (between.cpu_s - before.cpu_s) / gigabytes,
        "consume_mb_per_s": gigabytes * 1e3 / consumed["seconds"],
        "consume_cpu_s_per_gb": (after.cpu_s - between.cpu_s) / gigabytes,
    }


def handshakes_per_s(way: Way, context: ssl.SSLContext, seconds: float) -> Figures:
    """New connections one after the other, by each of some threads, until the time is over."""
    done = [0] * _THREADS
    before = cost(way.broker.pid).cpu_s
    deadline = time.monotonic() + seconds

    def connect(number: int) -> None:
        while time.monotonic() < deadline:
            _handshake(way.port, context)
            done[number] += 1

    threads = [threading.Thread(target=connect, args=[number]) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu_s = cost(way.broker.pid).cpu_s - before
    return {"handshakes_per_s": sum(done) / seconds, "broker_cpu_ms": 1e3 * cpu_s / max(sum(done), 1)}


def _handshake(port: int, context: ssl.SSLContext) -> None:
    with socket.create_connection((HOST, port), 60) as plain, context.wrap_socket(plain, server_hostname=HOST) as it:
        it.version()


def at_once(folder: Path, certificates: Certificates) -> Figures:
    """So many connections at once: the time until the last is encrypted, and how long that held the event loop."""
    settings = _tls_settings(certificates) | {"listeners": f"SSL://{HOST}:0", "ottla.loop.hold.warning.ms": "0.5"}
    with TwoListeners(folder / "at-once", overrides=settings) as broker:
        _handshake(broker.port, certificates.context)  # what is loaded with the first one is not part of it
        seconds = asyncio.run(_many(broker.port, certificates.context))
        broker.stop()
        log = broker.log_path.read_text(errors="replace")
        hold = longest_hold(log, log)
    return {"seconds": seconds, "longest_hold_ms": hold.longest_ms, "longest_cpu_hold_ms": hold.longest_cpu_ms}


async def _many(port: int, context: ssl.SSLContext) -> float:
    async def one() -> None:
        _, writer = await asyncio.open_connection(HOST, port, ssl=context, ssl_handshake_timeout=60)
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(_AT_ONCE)))
    seconds = time.monotonic() - began
    for writer in writers:
        writer.transport.abort()
    return seconds


def in_turn(ways: Sequence[Way], pairs: int, measure: Callable[[Way], Figures]) -> None:
    """Measure each way so often, in the other order in every second pair, and print the medians."""
    found: dict[str, dict[str, list[float]]] = {way.name: defaultdict(list) for way in ways}
    for pair in range(pairs):
        for way in ways if pair % 2 == 0 else reversed(ways):
            figures = measure(way)
            print(f"{pair + 1}/{pairs} {way.name}: {figures}", file=sys.stderr, flush=True)
            for name, value in figures.items():
                found[way.name][name].append(value)
    print(f"| | {' | '.join(found)} |\n|---|{'---:|' * len(found)}")
    for name in next(iter(found.values())):
        print(f"| {name} | {' | '.join(f'{statistics.median(each[name]):.2f}' for each in found.values())} |")


def measure_tls(folder: Path, asked: argparse.Namespace) -> None:
    with both(folder, make_certificates(folder), kafka=asked.kafka) as ways:
        for way in ways:  # warm up
            throughput(way, asked.records)
        in_turn(ways, asked.pairs, lambda way: throughput(way, asked.records))


def measure_handshakes(folder: Path, asked: argparse.Namespace) -> None:
    certificates = make_certificates(folder)
    context = certificates.context
    with both(folder, certificates, kafka=asked.kafka) as ways:
        encrypted = [way for way in ways if way.client]
        for way in encrypted:  # warm up
            handshakes_per_s(way, context, asked.seconds / 2)
        in_turn(encrypted, asked.pairs, lambda way: handshakes_per_s(way, context, asked.seconds))
    print(f"\n{_AT_ONCE} at once: {at_once(folder, certificates)}")


def measure_acls(folder: Path, asked: argparse.Namespace) -> None:
    with ExitStack() as stack:
        ways = []
        for name, settings in (("without", {}), ("with ACLs", _AUTHORIZER)):
            broker = stack.enter_context(OttlaBroker(folder / name.replace(" ", "-"), overrides=settings))
            ways.append(Way(name, broker, broker.port, {}))
        for way in ways:  # warm up
            throughput(way, asked.records)
        in_turn(ways, asked.pairs, lambda way: throughput(way, asked.records))


PARTS: Final = {"tls": measure_tls, "handshakes": measure_handshakes, "acls": measure_acls}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long handshakes are counted")
    parser.add_argument("--only", choices=PARTS)
    asked = parser.parse_args()
    librdkafka.build()
    asked.kafka = missing() is None
    for name, measure in PARTS.items():
        if asked.only in (None, name):
            print(f"\n## {name}\n", flush=True)
            with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
                measure(Path(folder), asked)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(str(error.stderr))
