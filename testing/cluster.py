"""Several brokers that tests use, as processes that can be killed, paused and restarted one by one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.testing import topics
from ottla.testing.access import Access
from ottla.testing.broker import DEFAULT_SETTINGS
from ottla.testing.contents import Contents, setting
from ottla.testing.errors import BrokerError, WaitTimeoutError
from ottla.testing.nodes.node_process import NodeProcess

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from tempfile import TemporaryDirectory

    from ottla.client.client import Client

CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    **DEFAULT_SETTINGS,
    # Coordinators on every node of three.
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # A test should not have to wait nine seconds until a killed node is given up.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
}
"""Settings that differ from nodes in production, unless the test says otherwise."""

_REPLICAS: Final = 3

_POLL_SECONDS: Final = 0.01
_MEET_SECONDS: Final = 20.0


class Cluster(Contents):
    """Real brokers on free ports of 127.0.0.1, each a process of its own, sharing one data folder and its metadata.

    Use it as a context manager, or call `start` and `close`. Node ids count from 1. `config` holds settings of every
    node by Kafka's names, and `node_config` those of single nodes, by id, which override them. Data goes to `data_dir`,
    or to a temporary folder. `users`, `acls`, `tls` and `max_versions` are as for `Broker`; the nodes talk to each
    other in the same way.

    Every method may be called from any thread, and blocks. Failures raise BrokerError.
    """

    #: The pytest fixture that provides it, for reports of failed tests.
    fixture = "ottla_cluster"

    def __init__(
        self,
        nodes: int = 3,
        *,
        config: Mapping[str, object] | None = None,
        users: Mapping[str, str] | None = None,
        acls: Iterable[str] | None = None,
        tls: bool = False,
        data_dir: str | os.PathLike[str] | None = None,
        node_config: Mapping[int, Mapping[str, object]] | None = None,
        max_versions: str | None = None,
    ) -> None:
        super().__init__(Access(users, acls, tls=tls))
        self._temporary: TemporaryDirectory[str] | None = None
        if data_dir is None:
            from tempfile import TemporaryDirectory

            self._temporary = TemporaryDirectory(prefix="ottla-")
            data_dir = self._temporary.name
        given = {name: setting(value) for name, value in (config or {}).items()}
        if max_versions is not None:
            given["ottla.kafka.release"] = max_versions
        settings = {
            **CLUSTER_SETTINGS,
            **_replicated(min(nodes, _REPLICAS)),
            **given,
            **self._access.settings(given),
        }
        settings.setdefault("listeners", f"{self._access.protocol}://127.0.0.1:0")
        if not self._access.is_open:
            settings["inter.broker.listener.name"] = self._access.protocol
        secrets = self._access.secrets()
        own = {
            node_id: {name: setting(value) for name, value in configs.items()}
            for node_id, configs in (node_config or {}).items()
        }
        self._nodes = {
            node_id: NodeProcess(
                {**settings, **own.get(node_id, {}), "node.id": str(node_id)},
                Path(data_dir),
                f"node-{node_id}.log",
                secrets=secrets,
            )
            for node_id in range(1, nodes + 1)
        }
        self._is_prepared = False
        self._paused: set[int] = set()

    # Life.

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, node_id: int | None = None) -> None:
        """Start a node, or all that are not running, on the ports and data that they had before.

        Returns when they serve and all running nodes know of each other.
        """
        self._forget_clients()
        begun = [node for node in self._chosen(node_id) if not node.is_running]
        for node in begun:
            node.begin()
        for node in begun:
            node.await_ready()
        self._wait_until_all_know_all()
        if not self._is_prepared:
            self._let_in()
            self._is_prepared = True

    def stop(self, node_id: int | None = None) -> None:
        """Stop a node, or all of them, in order. The data is kept for the next `start`."""
        self._forget_clients()
        self._end(node_id, NodeProcess.stop)

    def kill(self, node_id: int | None = None) -> None:
        """End the process of a node, or of all nodes, by SIGKILL, whatever it is doing."""
        self._forget_clients()
        self._end(node_id, NodeProcess.kill)

    def restart(self, node_id: int | None = None) -> None:
        """Stop a node, or all of them, in order and start again; one that was killed is just started."""
        self.stop(node_id)
        self.start(node_id)

    def pause(self, node_id: int) -> None:
        """Stop the execution of a node (SIGSTOP): its connections stay, nothing is answered, its session runs out."""
        (node,) = self._chosen(node_id)
        self._forget_clients()
        node.freeze()
        self._paused.add(node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused node continue."""
        (node,) = self._chosen(node_id)
        node.thaw()
        self._paused.discard(node_id)

    @contextmanager
    def paused(self, node_id: int) -> Iterator[None]:
        """Pause a node during a `with` block."""
        self.pause(node_id)
        try:
            yield
        finally:
            self.resume(node_id)

    def close(self) -> None:
        """Stop all nodes for good, and delete their temporary folder, if they have one."""
        self._close_ports()
        self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def reset(self) -> None:
        """Forget topics, groups and transactions. Paused nodes continue, and ended ones are started again."""
        for node_id in list(self._paused):
            self.resume(node_id)
        self.start()
        self._forget_consumers()
        with self._client() as client:
            topics.delete_all(client)
        self._reset_schemas()
        self._wait_until_all(lambda client: not topics.listed(client), "still has topics")
        self._let_in()

    # Topics. When these return, every node knows of the change.

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> None:
        """Create a topic, which accepts records when this returns; `configs` by Kafka's names."""
        super().create_topic(name, partitions, configs)
        self._wait_until_all(lambda client: name in topics.listed(client), f"does not know {name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        super().delete_topic(name)
        self._wait_until_all(lambda client: name not in topics.listed(client), f"still has {name}")

    # What there is.

    @property
    def node_ids(self) -> list[int]:
        """All of them, whether they run or not."""
        return list(self._nodes)

    @property
    def running(self) -> list[int]:
        """The nodes whose processes live, including paused ones."""
        return [node_id for node_id, node in self._nodes.items() if node.is_running]

    @property
    def is_running(self) -> bool:
        """Whether any node does."""
        return bool(self.running)

    @property
    def bootstrap(self) -> str:
        """What clients connect to: the addresses of all nodes, `127.0.0.1:port,127.0.0.1:port,…`."""
        return ",".join(map(self.address, self._nodes))

    @property
    def bootstrap_servers(self) -> str:
        """The same, by the name that clients use."""
        return self.bootstrap

    def address(self, node_id: int) -> str:
        """The address of one node, even while it is not running: `127.0.0.1:port`."""
        (node,) = self._chosen(node_id)
        if node.address is None:
            raise BrokerError("the cluster was never started")
        return "{}:{}".format(*node.address)

    def pid(self, node_id: int) -> int:
        """The process of a running node."""
        (node,) = self._chosen(node_id)
        return node.pid

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; -1 if none does."""
        with self._client() as client:
            (found,) = [it for it in client.topic(topic).partitions if it.partition_index == partition]
            return found.leader_id

    def wait_for_leader(self, topic: str, partition: int = 0, *, other_than: int = -1, timeout_s: float = 15.0) -> int:
        """Wait until a partition has a leader, and not this one. Raises WaitTimeoutError if that takes too long."""
        return self._wait(
            lambda: (led := self.leader(topic, partition)) not in (-1, other_than) and led,
            timeout_s,
            f"{topic}-{partition} has no leader other than {other_than}",
        )

    def move_leader(self, topic: str, partition: int, node_id: int, timeout_s: float = 15.0) -> None:
        """Let a node lead a partition, as an administrator does it; every node knows of it when this returns.

        The node becomes its first replica, in the place of another one if it had none. Raises BrokerError if the
        cluster refuses, WaitTimeoutError if the node does not catch up in time.
        """
        from ottla.testing.moves import move_leader

        self._chosen(node_id)
        with self._client() as client:
            move_leader(client, topic, partition, node_id, timeout_s)
        self._wait_until_all(
            lambda client: client.topic(topic).partitions[partition].leader_id == node_id,
            f"does not know that {node_id} leads {topic}-{partition}",
        )

    def coordinator(self, group: str) -> int:
        """The node that coordinates a group."""
        from ottla.client.admin.group_state import Coordinator

        with self._client() as client:
            return Coordinator(client, _MEET_SECONDS).node_id(group)

    def move_coordinator(self, group: str, node_id: int, timeout_s: float = 15.0) -> None:
        """Let a node coordinate a group: it leads the partition of `__consumer_offsets` that keeps the group."""
        from ottla.coordinator.partitioning import coordinator_partition
        from ottla.metadata.internal_topics import CONSUMER_OFFSETS

        self.coordinator(group)  # makes the topic
        with self._client() as client:
            partitions = len(client.topic(CONSUMER_OFFSETS).partitions)
        self.move_leader(CONSUMER_OFFSETS, coordinator_partition(group, partitions), node_id, timeout_s)

    # Below.

    def _chosen(self, node_id: int | None) -> Sequence[NodeProcess]:
        if node_id is None:
            return list(self._nodes.values())
        if node_id not in self._nodes:
            raise BrokerError(f"there is no node {node_id}: they are {', '.join(map(str, self._nodes))}")
        return [self._nodes[node_id]]

    def _end(self, node_id: int | None, end: Callable[[NodeProcess], None]) -> None:
        """All at once: the last one would have nobody to hand over to."""
        from concurrent.futures import ThreadPoolExecutor

        nodes = self._chosen(node_id)
        with ThreadPoolExecutor(len(nodes)) as threads:
            list(threads.map(end, nodes))
        self._paused.difference_update(set(self._nodes) if node_id is None else {node_id})

    @property
    def _addresses(self) -> Sequence[tuple[str, int]]:
        found = [
            node.address
            for node_id, node in self._nodes.items()
            if node.is_running and node_id not in self._paused and node.address is not None
        ]
        if not found:
            raise BrokerError("no node of the cluster is running")
        return found

    def _let_in(self) -> None:
        """Its users, on all nodes, are the ones that the test has named."""
        if self._access.is_open:
            return
        with self._client() as client:
            self._access.prepare(client)
        self._wait_until_all(self._access.is_prepared, "does not know all users")

    def _wait_until_all_know_all(self) -> None:
        expected = set(self.running)
        self._wait_until_all(
            lambda client: expected <= {broker.node_id for broker in client.metadata([]).brokers},
            "does not know all nodes",
        )

    def _wait_until_all(self, condition: Callable[[Client], bool], complaint: str) -> None:
        """Wait until a condition holds at every node that answers: a change reaches the others a moment later."""
        for address in self._addresses:
            with self._connect([address], _MEET_SECONDS) as client:
                self._wait(partial(condition, client), _MEET_SECONDS, f"{address} {complaint}")

    def _wait(self, condition: Callable[[], int], timeout_s: float, complaint: str) -> int:
        deadline = time.monotonic() + timeout_s
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"{complaint} after {timeout_s:g} s")
            time.sleep(_POLL_SECONDS)
        return found


def _replicated(replicas: int) -> dict[str, str]:
    """As in production: every partition has replicas, and accepts records as long as at most one of them is missing."""
    in_sync = max(replicas - 1, 1)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
    }
