"""Sequences of hostile requests on a broker of its own, beside an honest client: `make fuzz`.

Every API in every version, generated from the schemas: each field has a value that makes sense, one that answers have
named before, or a hostile one; some frames are damaged, cut short, or come with others before they are answered. In the
end there must be no traceback in the broker's log, no hold of its event loop beyond `HOLD_MS` of CPU, no memory beyond
its budgets, and an honest client that was served all the time.

`python -m tests.fuzz.fuzz_sequences [--seconds S] [--seed N] [--unwatched]` prints what it sent, and what went wrong.
"""

from __future__ import annotations

import argparse
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from ottla.client.errors import ClientError
from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, EncodeError
from ottla.kproto.messages import request_class
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Compression, Record, build_batch
from ottla.kproto.schema import Field, Request, Struct, StructType, TaggedField
from ottla.server.apis.table import declaration, served
from tests.attack.honest import TOPIC as HONEST
from tests.attack.stage import BUDGETS_MIB, UNWATCHED, Target, suffer

ALLOWED_MIB: Final = BUDGETS_MIB + 150
HOLD_MS: Final = 20.0
THREADS: Final = 3
TOPIC: Final = "fuzzed"

_ANSWER_SECONDS: Final = 30.0
#: Those may have to wait for others: their connection is given up.
_SHORT_SECONDS: Final = 0.2
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_NAMES: Final = (TOPIC, "g", "txn", "m", "__consumer_offsets", "__transaction_state", "", "a/../\0é", "x" * 32_767)
_CONFIGS: Final = ("cleanup.policy", "retention.ms", "compact", "1", "max.message.bytes", "lz4", "compression.type")
_PROTOCOLS: Final = ("consumer", "range", "roundrobin", "uniform", "cluster", "user", "client-id")
_WAITING: Final = frozenset(key for key in served() if declaration(key).may_wait or declaration(key).pipelined)
_LENGTHS: Final = (0, 1, 1, 1, 2, 3, 5)
_RARE_LENGTHS: Final = (130, 1_500, 20_000)


class Generator:
    """Makes requests; what answers name is used again."""

    def __init__(self, seed: int, topic_id: UUID, forbidden: UUID) -> None:
        self._random = random.Random(seed)
        self._forbidden = forbidden
        self._strings: deque[str] = deque((*_NAMES[:4], *_CONFIGS, *_PROTOCOLS), maxlen=300)
        self._ids: deque[UUID] = deque((topic_id,), maxlen=50)
        self._numbers: deque[int] = deque((0, 1, 2), maxlen=100)
        self._left = 0
        batch = build_batch([Record(timestamp_ms=1_700_000_000_000 + n, value=bytes(20)) for n in range(5)])
        zstd = build_batch([Record(timestamp_ms=1, value=bytes(5_000))], compression=Compression.ZSTD)
        self._batches = (batch, zstd, batch + batch, b"", bytes(61), batch[:-3])

    @property
    def random(self) -> random.Random:
        return self._random

    def request(self, key: ApiKey, version: int) -> Request:
        self._left = 30_000
        request: Request = self._struct(request_class(key), version)
        _tame(request)
        if self._random.random() < 0.02 and request.FLEXIBLE_VERSIONS.includes(version):
            request.unknown_tagged_fields = (TaggedField(1000, self._random.randbytes(20)),)
        return request

    def learn(self, answer: Any) -> None:
        """Remember what an answer names."""
        for field in answer.FIELDS:
            value = getattr(answer, field.name)
            for one in value[:3] if isinstance(value, list | tuple) else (value,):
                if isinstance(one, Struct):
                    self.learn(one)
                elif isinstance(one, str) and 0 < len(one) < 200 and one != HONEST:
                    self._strings.append(one)
                elif isinstance(one, UUID) and one != self._forbidden:
                    self._ids.append(one)
                elif type(one) is int:
                    self._numbers.append(one)

    def _struct(self, cls: StructType, version: int) -> Any:
        fields = [field for field in cls.FIELDS if field.versions.includes(version)]
        return cls(**{field.name: self._field(field, version) for field in fields})

    def _field(self, field: Field, version: int) -> Any:
        chance = self._random.random
        if chance() < 0.03:
            return None  # where that cannot be, the request is not sent
        if field.kind == "array":
            element = field.element
            assert element is not None
            count = self._random.choice(_LENGTHS if chance() < 0.995 else _RARE_LENGTHS)
            count = min(count, self._left)
            self._left -= count
            if isinstance(element, StructType):
                items = [self._struct(element, version) for _ in range(min(count, 50))]
                return [items[n % len(items)] for n in range(count)]
            return [self._value(element.name, field.name) for _ in range(count)]
        if field.kind == "struct":
            assert isinstance(field.element, StructType)
            return self._struct(field.element, version)
        return self._value(field.kind, field.name)

    def _value(self, kind: str, name: str) -> Any:
        choice, chance = self._random.choice, self._random.random()
        if kind == "string":
            if "topic" in name and chance < 0.6:
                return TOPIC
            return choice(self._strings) if chance < 0.9 else choice(_NAMES)
        if kind == "uuid":
            return choice(self._ids) if chance < 0.9 else choice((UUID(int=0), UUID(int=1), UUID(int=1 << 90)))
        if kind == "records" or name == "records":
            return self._damaged(choice(self._batches)) if chance < 0.3 else choice(self._batches)
        if kind == "bytes":
            return self._random.randbytes(choice((0, 4, 40)))
        if kind == "bool":
            return chance < 0.5
        if kind == "float64":
            return choice((0.0, 1.0, -1.0, float("inf"), float("nan"), 1e308))
        if "wait" in name or "timeout" in name:
            return choice((0, 1, 50))
        bits = _BITS.get(kind, 16)
        if chance < 0.7:
            number = choice(self._numbers) if chance < 0.35 else choice((0, 1, 2, 3, -1))
        else:
            number = choice((-(1 << (bits - 1)), (1 << (bits - 1)) - 1, 100, -2, 1 << (bits // 2)))
        number %= 1 << bits
        return number - (1 << bits) if kind in _BITS and number >= 1 << (bits - 1) else number

    def _damaged(self, data: bytes) -> bytes:
        damaged = bytearray(data or b"\0")
        for _ in range(self._random.choice((1, 1, 4))):
            damaged[self._random.randrange(len(damaged))] = self._random.randrange(256)
        cut = self._random.random()
        return bytes(damaged[: self._random.randrange(len(damaged))] if cut < 0.2 else damaged)

    def frame(self, key: ApiKey, version: int, correlation_id: int) -> bytes:
        """A frame, now and then a damaged one. Raises EncodeError."""
        body = codec.build(self.request(key, version), version)
        if self._random.random() < 0.15:
            body = self._damaged(body)
        frame = headers.build_request_header(key, version, correlation_id, "fuzz") + body
        if self._random.random() < 0.02:
            frame = self._damaged(frame)
        return struct.pack(">i", len(frame)) + frame


def _tame(request: Any) -> None:
    """Take out what would rightly keep the honest client from being served, or keep a disk busy for minutes."""
    for field in request.FIELDS:
        value = getattr(request, field.name)
        if field.name in ("num_partitions", "count") and isinstance(value, int) and 20 < value <= 10_000:
            setattr(request, field.name, 3)
        elif field.name == "resource_type" and request.FIELDS[0].name == "resource_type":
            request.resource_type = 2 if value == 4 else value  # topics, not brokers
        elif field.name == "entity_name" and value is None:
            request.entity_name = "u"
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, Struct):
                _tame(one)


class Fuzzer:
    """Sends from several threads until the time is over."""

    def __init__(self, seed: int, seconds: float) -> None:
        self._seed = seed
        self._seconds = seconds
        self.counts: Counter[str] = Counter()
        self.unanswered: Counter[str] = Counter()

    def attack(self, target: Target) -> None:
        """What `suffer` runs."""
        end = time.monotonic() + self._seconds
        connection = target.connect()
        topic = CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1)
        created = connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=HONEST)])
        honest_id = connection.call(asked, at_most=12).topics[0].topic_id
        assert honest_id != UUID(int=0), "it is not to be deleted by its id"
        connection.close()
        threads = [
            threading.Thread(target=self._run, args=(target, number, created.topics[0].topic_id, honest_id, end))
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._count_what_is_left(target)

    def _count_what_is_left(self, target: Target) -> None:
        """What clients have made counts for the memory in use."""
        with closing(target.connect()) as connection:
            topics = connection.call(MetadataRequest(topics=None), at_most=12).topics
            self.counts["topics left"] = len(topics)
            self.counts["partitions left"] = sum(len(topic.partitions) for topic in topics)
            self.counts["groups left"] = len(connection.call(ListGroupsRequest(), at_most=5).groups)
            self.counts["MiB left"] = int(target.memory_mib())

    def _run(self, target: Target, number: int, topic_id: UUID, honest_id: UUID, end: float) -> None:
        generator = Generator(self._seed * THREADS + number, topic_id, honest_id)
        while time.monotonic() < end:
            try:
                self._sequence(target, generator)
            except (OSError, ClientError):
                self.counts["connections lost"] += 1

    def _sequence(self, target: Target, generator: Generator) -> None:
        """What one connection sends."""
        chosen = generator.random
        keys = chosen.choices(tuple(served()), k=chosen.choice((1, 3, 10, 40)))
        if chosen.random() < 0.3:  # one API over and over, as its state goes on
            keys = [keys[0]] * len(keys)
        reads = chosen.random() < 0.9
        with socket.create_connection(("127.0.0.1", target.port), 10) as connection:
            self.counts["connections"] += 1
            for number, key in enumerate(keys):
                version = chosen.randint(key.valid_versions.lowest, key.valid_versions.highest)
                with suppress(EncodeError, struct.error, OverflowError, TypeError, AttributeError):
                    frame = generator.frame(key, version, number)
                    self.counts["frames"] += 1
                    if chosen.random() < 0.01:
                        connection.sendall(frame[: chosen.randrange(len(frame))])
                        return
                    connection.settimeout(_SHORT_SECONDS if key in _WAITING or not reads else _ANSWER_SECONDS)
                    connection.sendall(frame)
                    if reads and not self._read(connection, generator, key, version, number):
                        return

    def _read(self, connection: socket.socket, generator: Generator, key: ApiKey, version: int, number: int) -> bool:
        """Read an answer and learn from it; False if the connection is of no use any more."""
        try:
            head = _receive(connection, 4)
            if len(head) < 4:
                self.counts["closed"] += 1
                return False
            body = _receive(connection, struct.unpack(">i", head)[0])
        except TimeoutError:
            if key not in _WAITING:
                self.unanswered[key.name] += 1
            return False
        self.counts["answers"] += 1
        (answered,) = struct.unpack_from(">i", body)
        if answered == number and len(body) < 100_000:
            start = 4 if key.response_header_version(version) == 0 else 5
            with suppress(DecodeError):
                generator.learn(codec.parse_response(key, version, body[start:]))
        return True


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    """So many bytes, fewer only at the end of the stream."""
    received = bytearray()
    while len(received) < size_bytes and (part := connection.recv(min(size_bytes - len(received), 1 << 20))):
        received += part
    return bytes(received)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--unwatched", action="store_true", help="as the broker runs without a watch on its event loop")
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.seed, arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        it = suffer(fuzzer.attack, Path(folder), UNWATCHED if arguments.unwatched else None)
        log = (Path(folder) / "broker.log").read_text(encoding="utf-8", errors="replace")
    print(
        f"seed {arguments.seed}: {dict(fuzzer.counts)}; honest client: {it.honest_calls} rounds, p99 of a produce "
        f"{it.produce_ms:.1f} ms; peak {it.peak_mib:.0f} MiB; longest hold {it.longest_cpu_ms:.1f} ms {it.holders}"
    )
    wrong = []
    if it.tracebacks:
        wrong.append(f"{it.tracebacks} tracebacks, first:\n{log[max(0, log.index('Traceback') - 300) :][:3_000]}")
    if it.longest_cpu_ms > HOLD_MS:
        wrong.append(f"a hold of {it.longest_cpu_ms:.1f} ms")
    if it.peak_mib > ALLOWED_MIB:
        wrong.append(f"{it.peak_mib:.0f} MiB of {ALLOWED_MIB}")
    if it.honest_error or it.honest_calls < arguments.seconds / 5:
        wrong.append(f"the honest client: {it.honest_error or it.honest_calls}")
    if fuzzer.unanswered:
        wrong.append(f"not answered in {_ANSWER_SECONDS:.0f} s: {dict(fuzzer.unanswered)}")
    print("\n".join(wrong) or "nothing wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
