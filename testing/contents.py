"""What a broker or a cluster under test holds, asked over its own protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.client import Client
from ottla.client.errors import BrokerError as RefusedError
from ottla.client.errors import ClientError
from ottla.testing import event_loops, topics
from ottla.testing.access import SCRAM, Access
from ottla.testing.errors import BrokerError, WaitTimeoutError
from ottla.testing.faults.dispatcher import EXEMPT_CLIENT_ID
from ottla.testing.record import Record, encode

if TYPE_CHECKING:
    import os
    import ssl

    from ottla.testing.groups import Group
    from ottla.testing.services.rest import Rest
    from ottla.testing.services.schemas import Schemas

_REQUEST_SECONDS: Final = 30.0
_POLL_MS: Final = 100
_GROUP_SECONDS: Final = 0.02


class Contents:
    """Topics, records and groups: what `Broker` and `Cluster` have in common."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._mutex = threading.Lock()
        self._idle_clients: list[Client] = []
        self._schemas: Schemas | None = None
        self._rest: Rest | None = None

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> None:
        """Create a topic, which accepts records when this returns; `configs` by Kafka's names."""
        with self._client() as client:
            topics.create(client, name, partitions, {key: setting(value) for key, value in (configs or {}).items()})

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        with self._client() as client:
            topics.delete(client, [name])

    def topics(self) -> dict[str, int]:
        """The topics, except internal ones, and how many partitions each has."""
        with self._client() as client:
            return topics.listed(client)

    def produce(
        self,
        topic: str,
        *values: object,
        key: object = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append a record for each value: bytes, text, None for a tombstone, or what JSON can write.

        Returns when all are acknowledged. The topic is created if it does not exist. By default the key decides the
        partition; without a key, the partitions take turns.
        """
        stamp = self._now_ms() if timestamp_ms is None else timestamp_ms
        named = tuple((name, encode(value)) for name, value in (headers or {}).items())
        records = [Record(topic, -1, -1, stamp, encode(key), encode(value), named) for value in values]
        self.produce_records(records, partition)

    def produce_records(self, records: Iterable[Record], partition: int | None = None) -> None:
        """Append records, each to its own topic, and to its partition unless that is -1. Their offsets are ignored."""
        with self._client() as client:
            topics.produce(client, records, partition)

    def records(self, topic: str, *, partition: int | None = None, read_committed: bool = True) -> list[Record]:
        """All records of a topic by timestamp, those of each partition in order; empty if there is no such topic.

        Without `read_committed`, records of open and aborted transactions are included.
        """
        with self._client() as client:
            return topics.records(client, topic, partition=partition, read_committed=read_committed)

    def last_records(self, topic: str, count: int) -> tuple[list[Record], int]:
        """The last records of a topic, even uncommitted ones, and how many offsets all its partitions have used."""
        with self._client() as client:
            return topics.last_records(client, topic, count)

    def wait_for(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Record]:
        """Wait until a topic has `count` records, and return all of them. The topic need not exist yet.

        Raises WaitTimeoutError, an AssertionError, which says what was there. It blocks; see also `wait_for_async`.
        """
        event_loops.refuse_to_block()
        return self._wait_for(topic, count, timeout_s)

    async def wait_for_async(self, topic: str, count: int = 1, timeout_s: float = 10.0) -> list[Record]:
        """`wait_for` for asyncio and Trio."""
        return await event_loops.in_worker_thread(lambda: self._wait_for(topic, count, timeout_s))

    def _wait_for(self, topic: str, count: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        with self._client() as client:
            found = topics.wait_for(client, topic, count, deadline, _POLL_MS)
        if len(found) < count:
            raise WaitTimeoutError(_what_came(topic, count, timeout_s, found))
        return found

    def groups(self) -> dict[str, Group]:
        """The consumer groups, by name."""
        from ottla.testing.groups import list_groups

        with self._client() as client:
            return list_groups(client, _REQUEST_SECONDS)

    def wait_for_group(
        self,
        name: str,
        *,
        state: str | None = None,
        members: int | None = None,
        lag: int | None = None,
        timeout_s: float = 10.0,
    ) -> Group:
        """Wait until a group is in a state (`Stable`), has so many members, or is at most so many records behind.

        Without any of them: until it exists. Returns the group. Raises WaitTimeoutError, an AssertionError, which says
        what there was. It blocks; see also `wait_for_group_async`.
        """
        event_loops.refuse_to_block()
        return self._wait_for_group(name, state, members, lag, timeout_s)

    async def wait_for_group_async(
        self,
        name: str,
        *,
        state: str | None = None,
        members: int | None = None,
        lag: int | None = None,
        timeout_s: float = 10.0,
    ) -> Group:
        """`wait_for_group` for asyncio and Trio."""
        return await event_loops.in_worker_thread(lambda: self._wait_for_group(name, state, members, lag, timeout_s))

    def _wait_for_group(
        self, name: str, state: str | None, members: int | None, lag: int | None, timeout_s: float
    ) -> Group:
        deadline = time.monotonic() + timeout_s
        while True:
            group = self.groups().get(name)
            if (
                group is not None
                and state in (None, group.state)
                and members in (None, len(group.members))
                and (lag is None or (group.lag and sum(group.lag.values()) <= lag))
            ):
                return group
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"{_what_group(name, group)} after {timeout_s:g} s")
            time.sleep(_GROUP_SECONDS)

    def load(self, path: str | os.PathLike[str], topic: str | None = None, *, key_delimiter: str | None = None) -> int:
        """Append the records of a file; returns how many. `ottla.testing.seed` says which files there may be.

        `topic` is for records that do not name one themselves; `key_delimiter` separates key and value in plain lines.
        """
        from ottla.testing.seed import read_seed

        seed = read_seed(Path(path), topic, now_ms=self._now_ms(), key_delimiter=key_delimiter)
        with self._client() as client:
            for name, partitions in seed.topics.items():
                topics.create(client, name, partitions, {}, exist_ok=True)
            return topics.produce(client, seed.records, None)

    # Schemas.

    @property
    def schema_registry_url(self) -> str:
        """The address of a schema registry for this broker, started when it is first asked for.

        It has Confluent's HTTP interface, asks for no login, and keeps its schemas in the topic `_schemas`.
        """
        return self.schemas.url

    @property
    def schemas(self) -> Schemas:
        """That schema registry."""
        from ottla.testing.services.schemas import Schemas

        with self._mutex:
            if self._schemas is None:
                self._schemas = Schemas(list(self._addresses), self._access.own)
            return self._schemas

    def _reset_schemas(self) -> None:
        """Wait until the registry, if it runs, has seen that its topic is gone."""
        if self._schemas is not None:
            self._schemas.wait_empty()

    # The REST proxy.

    @property
    def rest_url(self) -> str:
        """The address of a REST proxy for this broker, as Confluent's, started when it is first asked for.

        It asks for no login, and finds schemas at `schema_registry_url`.
        """
        from ottla.testing.services.rest import Rest

        with self._mutex:
            if self._rest is None:
                self._rest = Rest(list(self._addresses), self._access.own, self)
            return self._rest.url

    def _forget_consumers(self) -> None:
        """End those of the REST proxy, if it runs: their groups would come back."""
        if self._rest is not None:
            self._rest.reset()

    def _close_ports(self) -> None:
        """Stop the schema registry and the REST proxy."""
        with self._mutex:
            schemas, self._schemas = self._schemas, None
            rest, self._rest = self._rest, None
        if rest is not None:
            rest.close()
        if schemas is not None:
            schemas.close()

    # How clients connect.

    @property
    def bootstrap(self) -> str:
        """The addresses that clients ask first."""
        raise NotImplementedError

    def client_config(self, user: str | None = None, mechanism: str = SCRAM) -> dict[str, Any]:
        """How a user (by default the first one) connects, with librdkafka's names: a `Producer` takes it as it is."""
        return self._access.client_config(self.bootstrap, user, mechanism)

    def java_config(self, user: str | None = None, mechanism: str = SCRAM) -> dict[str, Any]:
        """The same with the names that Java's clients, Spark's connector and the `ottla` commands use."""
        return self._access.java_config(self.bootstrap, user, mechanism)

    @property
    def certificate_authority(self) -> str | None:
        """The certificate that clients have to trust, in PEM; None without TLS."""
        return self._access.authority

    def ssl_context(self) -> ssl.SSLContext | None:
        """An SSL context that trusts the broker's certificate, for aiokafka and kafka-python; None without TLS."""
        return self._access.ssl_context()

    # Below.

    @property
    def _addresses(self) -> Sequence[tuple[str, int]]:
        """Where it can be asked. Raises BrokerError if nothing is running."""
        raise NotImplementedError

    def _now_ms(self) -> int:
        """The timestamp of records that are produced without one."""
        return time.time_ns() // 1_000_000

    def _connect(self, addresses: Sequence[tuple[str, int]], timeout_seconds: float) -> Client:
        """A client that may do everything, and is exempt from faults."""
        return Client(addresses, timeout_seconds, EXEMPT_CLIENT_ID, security=self._access.own)

    @contextmanager
    def _client(self) -> Iterator[Client]:
        """A client for one caller: an idle one, or a new one. It is returned to the pool if nothing went wrong."""
        with self._mutex:
            client = self._idle_clients.pop() if self._idle_clients else None
        if client is None:
            client = self._connect(list(self._addresses), _REQUEST_SECONDS)
        try:
            yield client
        except RefusedError as error:
            client.__exit__()
            raise BrokerError(str(error), error.code) from None
        except ClientError as error:
            client.__exit__()
            raise BrokerError(str(error)) from None
        except BaseException:
            client.__exit__()
            raise
        with self._mutex:
            self._idle_clients.append(client)

    def _forget_clients(self) -> None:
        with self._mutex:
            clients, self._idle_clients = self._idle_clients, []
        for client in clients:
            client.__exit__()


def setting(value: object) -> str:
    """A setting as Kafka writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _what_group(name: str, group: Group | None) -> str:
    if group is None:
        return f"there is no group {name}"
    behind = sum(group.lag.values()) if group.lag else "no offsets, so an unknown number of"
    return f"group {name} is {group.state}, has {len(group.members)} members and is {behind} records behind"


def _what_came(topic: str, count: int, timeout_s: float, found: list[Record]) -> str:
    last = f"; the last is {found[-1]}" if found else ""
    return f"{topic} has {len(found)} of {count} records after {timeout_s:g} s{last}"
