"""kcat, the program: a process for every send and every consumer."""

from __future__ import annotations

import itertools
import json
import os
import selectors
import subprocess
import time
from collections.abc import Sequence

from compat_tests.clients.base import (
    ANSWER_TIMEOUT_S,
    BATCH_BYTES,
    LINGER_MS,
    MAX_REQUEST_BYTES,
    MESSAGE_TOO_LARGE,
    BrokerError,
    Feature,
    Record,
    Start,
)

RECORD_SEPARATOR = b"\x1e"
KEY_SEPARATOR = b"\x1f"
# One line of figures and headers, then key and value by their lengths, so that any byte may stand in them.
FORMAT = r"%p %o %T %K %S %h\n%k%s"


def failure(text: str) -> BrokerError:
    code = MESSAGE_TOO_LARGE if "Message size too large" in text else -1
    return BrokerError(code, text.strip())


class KcatProducer:
    def __init__(self, bootstrap: str, *, codec: str, acks: str, idempotent: bool) -> None:
        settings = {
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
            "message.max.bytes": MAX_REQUEST_BYTES,
        }
        self._command = ["kcat", "-P", "-b", bootstrap, "-z", codec]
        for name, value in settings.items():
            self._command += ["-X", f"{name}={value}"]

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        """kcat takes partition, headers and `-Z` (empty is null) for a whole run: one run for each change of them."""
        by_partition = sorted(records, key=lambda record: record.partition)
        for (partition, headers, null), run in itertools.groupby(by_partition, key=run_of):
            command = [*self._command, "-t", topic, "-p", str(partition), "-D", r"\x1e", "-K", r"\x1f"]
            for name, value in headers:
                command += ["-H", name if value is None else f"{name}={value.decode()}"]
            if null:
                command.append("-Z")
            self._send_run(command, list(run))
        return []

    def _send_run(self, command: Sequence[str], records: Sequence[Record]) -> None:
        lines = (
            (b"" if record.key is None else record.key + KEY_SEPARATOR) + (record.value or b"") for record in records
        )
        done = subprocess.run(
            command,
            input=RECORD_SEPARATOR.join(lines),
            capture_output=True,
            check=False,
            timeout=ANSWER_TIMEOUT_S,
        )
        if done.returncode != 0 or b"failed" in done.stderr:
            raise failure(done.stderr.decode())

    def close(self) -> None:
        """Nothing stays open between sends."""


def run_of(record: Record) -> tuple[int, tuple[tuple[str, bytes | None], ...], bool]:
    return record.partition, record.headers, record.value is None


class KcatConsumer:
    def __init__(self, bootstrap: str, topic: str, start: Start, partition: int, reset: str, isolation: str) -> None:
        offset = {"offset": str(start.at), "timestamp": f"s@{start.at}"}.get(start.kind, start.kind)
        command = ["kcat", "-C", "-E", "-u", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", offset]
        command += ["-f", FORMAT, "-X", f"topic.auto.offset.reset={reset}"]
        command += ["-X", "reconnect.backoff.max.ms=1000", "-X", f"isolation.level={isolation}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output, self._messages = bytearray(), bytearray()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ, self._output)
        self._selector.register(self._process.stderr, selectors.EVENT_READ, self._messages)
        if start.kind in ("end", "timestamp"):
            self.await_end()

    def await_end(self) -> None:
        """Until kcat stands at the end: it asks where that is a moment after it has started.

        A time after the last record means the end to it, and it asks for that in a second request.
        """
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while b"Reached end of topic" not in self._messages:
            self._read_until(deadline)
            assert time.monotonic() < deadline, self._messages.decode()

    def _read_until(self, deadline: float) -> None:
        """Waits for output of either kind. Raises BrokerError if kcat has ended."""
        for ready, _ in self._selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(ready.fd, 1 << 20)
            if not data:
                self._process.wait()
                raise failure(self._messages.decode())
            ready.data.extend(data)

    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        taken: list[Record] = []
        position = 0
        while len(taken) < count:
            parsed = parse(self._output, position)
            if parsed is not None:
                record, position = parsed
                taken.append(record)
            elif time.monotonic() < deadline:
                self._read_until(deadline)
            else:
                break
        del self._output[:position]
        return taken

    def close(self) -> None:
        self._selector.close()
        self._process.terminate()
        self._process.communicate()


def parse(output: bytearray, position: int) -> tuple[Record, int] | None:
    """The record that begins at `position` and where the next one does; None if it is not there whole."""
    line_end = output.find(b"\n", position)
    if line_end < 0:
        return None
    partition, offset, timestamp_ms, key_size, value_size, headers = output[position:line_end].split(b" ", 5)
    key_start = line_end + 1
    value_start = key_start + max(0, int(key_size))
    end = value_start + max(0, int(value_size))
    if len(output) < end:
        return None
    record = Record(
        value=None if int(value_size) < 0 else bytes(output[value_start:end]),
        key=None if int(key_size) < 0 else bytes(output[key_start:value_start]),
        headers=parse_headers(headers.decode()),
        timestamp_ms=int(timestamp_ms),
        partition=int(partition),
        offset=int(offset),
    )
    return record, end


def parse_headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return tuple((name, None if value == "NULL" else value.encode()) for name, _, value in pairs)


class Kcat:
    name = "kcat"
    lacks = frozenset(
        {
            Feature.BINARY,
            Feature.OFFSETS,
            Feature.OPEN_PRODUCER,
            Feature.RECORD_TIME,
            Feature.TIMESTAMP_TYPE,
        }
    )

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> KcatProducer:
        return KcatProducer(self._bootstrap, codec=codec, acks=acks, idempotent=idempotent)

    def consumer(
        self,
        topic: str,
        start: Start,
        *,
        partition: int = 0,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
    ) -> KcatConsumer:
        return KcatConsumer(self._bootstrap, topic, start, partition, reset, isolation)

    def topics(self) -> dict[str, int]:
        done = subprocess.run(
            ["kcat", "-L", "-J", "-b", self._bootstrap], capture_output=True, check=True, timeout=ANSWER_TIMEOUT_S
        )
        return {topic["topic"]: len(topic["partitions"]) for topic in json.loads(done.stdout)["topics"]}

    def close(self) -> None:
        """Each consumer's process is ended by who opened it."""
