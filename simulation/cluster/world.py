"""What one seed consists of: machines, the network and metadata store between them, clients, and their accounts."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from ottla.coordinator.share.state import SharePartitionKey
from ottla.metastore.memory import MemoryMetadataStore
from ottla.simulation.cluster.clients.dead_letters import GIVEN_UP
from ottla.simulation.cluster.histories.client_environment import Connect
from ottla.simulation.cluster.histories.history import History
from ottla.simulation.cluster.machines.machine import PORT, Machine, is_of_full_disk
from ottla.simulation.cluster.machines.network import Network
from ottla.simulation.cluster.machines.objects import ObjectStoreLink, new_object_store
from ottla.simulation.cluster.machines.pauses import PROCESS, Pauses
from ottla.simulation.storage.workers import Workers
from ottla.storage.disk.simulated_disk import IS_DEAD
from ottla.storage.errors import StoreOfflineError

if TYPE_CHECKING:
    from ottla.simulation.cluster.clients.dead_letters import DeadLetters
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.deliveries import Deliveries, Giver
    from ottla.simulation.harness.alarms import HangError
    from ottla.tiers.object_store import ObjectStore

__all__ = ["SETTINGS", "World"]

SETTINGS: Final[Mapping[str, str]] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.prune.interval.ms": "2000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "2000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "200",
    "group.share.initialize.retry.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1500",
}
"""Settings of every node: sessions are short, and there are few internal partitions."""


_KEPT: Final = "which its leader does not have, are set aside"
"""What is said of a log that was the only one in sync when that was last written down. Its leader may have pruned since
what it has. Where something goes that was committed there, another error says so."""

_CRAMPED: Final[Mapping[str, Sequence[str]]] = {
    "log.roll.ms": ("1000", "4000"),
    "max.incremental.fetch.session.cache.slots": ("0", "1", "2"),
    "ottla.max.in.flight.requests.per.connection": ("1", "2"),
    "ottla.open.files": ("1", "2"),
    "ottla.tail.cache.bytes": ("0", "600", "3000"),
    "share.coordinator.snapshot.update.records.per.snapshot": ("0", "3"),
}
"""Settings that half of all seeds have as well: caches are so small that they are full, and files are read."""


_ONE_IN: Final = 7
_TIERED: Final = 6
"""Which seeds have an object store: it makes them take longer."""
_TIERED_SETTINGS: Final[Mapping[str, str]] = {
    "ottla.remote.url": "file:///simulated",
    "ottla.remote.request.timeout.ms": "1000",
    "ottla.remote.snapshot.interval.ms": "2000",
    "ottla.remote.sweep.interval.ms": "1000",
    "remote.log.manager.task.interval.ms": "400",
}


class World:
    """The shared state of one seed, and its clients' `Surroundings`. Only `rng` decides anything in it."""

    def __init__(self, seed: int, *, nodes: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.workers = Workers(rng, pause_probability=rng.choice((0.0, 0.0, 0.05)))
        self.network = Network(rng)
        self.store = MemoryMetadataStore()
        self.pauses = Pauses()
        self.trace: list[str] = []
        #: The faults that have come, by number.
        self.faults: dict[int, str] = {}
        self.finding = ""
        self.cause: BaseException | None = None
        self.history = History(self)
        self.settings = _settings(rng, nodes)
        #: Whether topics are tiered. Not drawn, so that the rest of a seed is what it is without.
        self.is_tiered = seed % _ONE_IN == _TIERED
        self.objects: Callable[[int, int], ObjectStore] | None = None
        self.shared_objects = new_object_store()
        if self.is_tiered:
            self.settings |= _TIERED_SETTINGS
            self.objects = self._objects
        #: How often nodes have read from the object store in the end.
        self.remote_reads = 0
        self.machines = {node_id: Machine(self, node_id, self.settings) for node_id in range(1, nodes + 1)}
        self._last_id = nodes
        #: All that lives in this seed; cancelled at the first finding.
        self.scope = trio.CancelScope()
        self.nursery: trio.Nursery
        #: Clients begin nothing new any more.
        self.is_ending = False
        #: When faults are over there is a rolling upgrade, under load.
        self.is_upgraded = False
        #: What members of share groups were given.
        self.deliveries: list[Deliveries] = []
        #: The queues of the groups that have one.
        self.dead_letters: dict[str, DeadLetters] = {}

    def count_remote_reads(self) -> None:
        """Note how often the nodes that run have read from the object store."""
        brokers = [machine.broker for machine in self.machines.values()]
        storages = [broker.remote_storage for broker in brokers if broker is not None]
        self.remote_reads = sum(storage.counters.fetch_requests for storage in storages if storage is not None)

    def _objects(self, node_id: int, starts: int) -> ObjectStore:
        rng = Random(f"objects {self.seed} {node_id} {starts}")
        return ObjectStoreLink(self.shared_objects, rng, lambda: self.is_ending)

    @property
    def addresses(self) -> Mapping[int, tuple[str, int]]:
        return {node_id: (machine.host.address, PORT) for node_id, machine in self.machines.items()}

    def add_machine(self) -> Machine:
        """One more machine, with an id that none has had."""
        self._last_id += 1
        machine = self.machines[self._last_id] = Machine(self, self._last_id, self.settings)
        return machine

    def new_client(self) -> Connect:
        """A client is a host of its own."""
        return self.network.host(f"10.0.1.{len(self.network.hosts)}").stack().connect

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{trio.current_time():9.4f} {text}")

    def fail(self, finding: str, cause: BaseException | None = None) -> None:
        """The cluster did what it must not do: the seed ends here."""
        if not self.finding:
            self.finding = finding
            self.cause = cause
            self.note(f"FINDING {finding}")
            self.scope.cancel()

    def hung(self, error: HangError) -> None:
        """Nothing can happen any more, or it takes forever."""
        self.fail(f"it fails: {error!r}", error)

    def check(self, condition: bool, finding: str) -> None:
        if not condition:
            self.fail(finding)

    def share_leader(self, node_id: int, group: str, partition: Partition) -> Giver | None:
        """What a node has in memory of a group's share of a partition."""
        broker = self.machines[node_id].broker if node_id in self.machines else None
        made = None if broker is None else broker.share.made
        topic = None if broker is None else broker.metadata.topics.get(partition[0])
        if made is None or topic is None:
            return None
        return made._partitions.get(SharePartitionKey(group, topic.topic_id, partition[1]))


def _settings(rng: Random, nodes: int) -> dict[str, str]:
    copies = str(min(nodes, 3))
    # A node that is alone acknowledges only what is synced: nobody else has what a power cut takes.
    alone = {"log.flush.interval.messages": "1"} if nodes == 1 else {}
    cramped = {name: rng.choice(values) for name, values in _CRAMPED.items()} if rng.random() < 0.5 else {}
    return {
        **SETTINGS,
        **alone,
        **cramped,
        "min.insync.replicas": str(min(nodes, 2)),
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(nodes, 2)),
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": str(min(nodes, 2)),
        "group.share.delivery.count.limit": rng.choice(("3", "5", "10")),
    }


class LogWatch(logging.Handler):
    """Adds the nodes' warnings to the trace, and takes an error that no fault explains for a finding."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        node_id = PROCESS.get()
        machine = None if node_id is None else world.machines.get(node_id)
        is_gone = node_id is not None and (machine is None or machine.process is None)
        # A timer of a dead process may run when another process is there.
        if is_gone or IS_DEAD in record.getMessage():
            return  # it is dead, and what it says is heard by nobody
        world.note(f"node {node_id} {record.levelname.lower()}: {record.getMessage()}")
        if GIVEN_UP in record.msg and isinstance(record.args, tuple):
            records, topic, index, group, _ = record.args
            world.dead_letters[str(group)].give_up((str(topic), int(str(index))), int(str(records)))
        if machine is not None and machine.has_been_full and _is_of_full_disk(record):
            return
        if machine is not None and machine.has_failed and _is_of_failed_disk(record):
            return
        if record.exc_info is not None and isinstance(record.exc_info[1], BaseException):
            world.fail(f"node {node_id}: {record.getMessage()}: {record.exc_info[1]!r}", record.exc_info[1])
        elif record.levelno >= logging.ERROR and not self._is_of_power(record) and _KEPT not in record.getMessage():
            world.fail(f"node {node_id} reports an error: {record.getMessage()}")

    def _is_of_power(self, record: logging.LogRecord) -> bool:
        """Whether it reports what a power cut has left of torn writes, which an engine cannot tell from damage.

        Every start reports what was set aside, until somebody removes it, and the replicas are filled again.
        """
        has_lost = any(machine.disk._media.boots > 0 for machine in self._world.machines.values())
        return has_lost and any(text in record.getMessage() for text in ("set aside", "files are damaged"))


def _is_of_full_disk(record: logging.LogRecord) -> bool:
    """Whether it says that there is no room."""
    error = None if record.exc_info is None else record.exc_info[1]
    told = record.getMessage()
    texts = ("is full", "No space left", "no room", "could not be opened")
    return is_of_full_disk(error) or any(text in told for text in texts)


def _is_of_failed_disk(record: logging.LogRecord) -> bool:
    """Whether it says that an operation of the disk has failed, or what a write that failed has left."""
    error = None if record.exc_info is None else record.exc_info[1]
    told = record.getMessage()
    texts = ("is offline", "are offline", "could not be opened", os.strerror(errno.EIO), "set aside", "damaged")
    return isinstance(error, StoreOfflineError) or any(text in told for text in texts)
