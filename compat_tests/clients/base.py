"""What every real client is asked to do: the one interface that all scenarios are written against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_REQUEST_BYTES = 4 * 1024 * 1024  # Above the broker's limit, so that the broker is who refuses.
BATCH_BYTES = 900_000
LINGER_MS = 20
ANSWER_TIMEOUT_S = 120.0

MESSAGE_TOO_LARGE: Final = 10


class Feature(Enum):
    """What not every client can do; a scenario that needs one skips the clients without it."""

    ACKS = auto()  # choose acks=0 and acks=1
    BINARY = auto()  # any bytes in keys and values
    EMPTY_KEY = auto()  # a key of no bytes, told from no key
    NULL_HEADER = auto()  # a header whose value is null
    NULL_VALUE = auto()  # a tombstone
    OFFSETS = auto()  # report the offset of each acknowledged record
    OPEN_PRODUCER = auto()  # keep a producer over several sends
    RECORD_TIME = auto()  # set a record's timestamp
    TIMESTAMP_TYPE = auto()  # tell CreateTime from LogAppendTime


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is sent and as it comes back; `offset` and `partition` are set by the broker."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = -1
    log_append_time: bool | None = None

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        return self.key, self.value, self.headers


def contents(records: Iterable[Record]) -> list[object]:
    return [record.content for record in records]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a consumer starts. `at` is an offset or a timestamp in milliseconds."""

    kind: str
    at: int = 0


BEGINNING = Start("beginning")
END = Start("end")


def at_offset(offset: int) -> Start:
    return Start("offset", offset)


def at_timestamp(timestamp_ms: int) -> Start:
    return Start("timestamp", timestamp_ms)


class BrokerError(Exception):
    """The broker's answer was an error: `code` is Kafka's error code, -1 if the client does not tell it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


class Producer(Protocol):
    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        """Sends to each record's partition, waits for every acknowledgement; their offsets in order.

        Without Feature.OFFSETS the list is empty. Raises BrokerError.
        """

    def close(self) -> None: ...


class Consumer(Protocol):
    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Record]:
        """The next `count` records; fewer only if the time is over. Raises BrokerError."""

    def await_end(self) -> None:
        """Until it stands at the end of its partition: it reads what comes from now on, and nothing before."""

    def close(self) -> None: ...


class TransactionalProducer(Protocol):
    """A producer whose transactional id is initialized. All raise BrokerError, also when the producer is fenced."""

    def begin(self) -> None: ...

    def send(self, topic: str, records: Sequence[Record]) -> None:
        """Sends to each record's partition and waits until all are acknowledged."""

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commits a group's offsets, by partition, as part of the transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Client(Protocol):
    """One client library or program, connected to one broker."""

    name: str
    lacks: frozenset[Feature]

    def producer(self, *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> Producer: ...

    def consumer(
        self,
        topic: str,
        start: Start,
        *,
        partition: int = 0,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
    ) -> Consumer:
        """A consumer of one partition, without a group, whose start position is known when this returns."""

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""

    def close(self) -> None: ...


class AdminClient(Client, Protocol):
    """A client that also manages topics, writes transactions, and commits offsets without being in a group."""

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> TransactionalProducer:
        """Initializes the transactional id, and so fences who had it before."""

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None: ...

    def committed(self, group: str, topic: str, partition: int) -> int | None: ...
