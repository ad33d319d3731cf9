"""What happens to real nodes, to the ways between them, to etcd and to disks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from compat_tests.brokers.disks import Disks
from compat_tests.brokers.links import Link, Links
from ottla.client.errors import ClientError
from ottla.testing import BrokerError, Cluster
from ottla.testing.errors import WaitTimeoutError
from tests.etcd import Etcd

__all__ = ["UPTIME_S", "Faults"]

UPTIME_S = (0.1, 1.5)
FREEZE_S = (0.3, 4.0)
CUT_S = (0.5, 6.0)
SLOW_S = 0.3
ROOM_BYTES = 64 * 1024
_STARTS = 5


class Faults:
    """Each method is a fault from its beginning to its end, when all nodes that it has hit run.

    Several may be under way at a time, in threads: each hits nodes, and members of etcd, that no other one has hit.
    Where there are none left it does nothing, and takes its time.
    """

    def __init__(
        self,
        cluster: Cluster,
        links: Links,
        etcd: Etcd | None,
        moments: random.Random,
        *,
        to_etcd: Mapping[int, Sequence[Link]] | None = None,
        disks: Disks | None = None,
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._etcd = etcd
        self._moments = moments
        self._to_etcd = to_etcd or {}
        self._disks = disks
        self._lock = threading.Lock()
        self._hit: set[int] = set()
        self._members_hit: set[int] = set()
        #: How often a process took longer to start than a test would wait, on a machine that has much to do.
        self.slow_starts = 0

    # Nodes.

    def kill(self) -> None:
        with self._some(1) as nodes:
            self._kill(nodes)

    def kill_two(self) -> None:
        with self._some(2) as nodes:
            self._kill(nodes)

    def kill_all(self) -> None:
        with self._some(len(self._cluster.node_ids)) as nodes:
            self._kill(nodes, (0.0, 0.0))

    def _kill(self, nodes: Sequence[int], down_s: tuple[float, float] = UPTIME_S) -> None:
        for node in nodes:
            self._cluster.kill(node)
        self._wait(*down_s)
        self._start(*nodes)

    def stop(self) -> None:
        with self._some(1) as nodes:
            for node in nodes:
                self._cluster.stop(node)
            self._start(*nodes)

    def freeze(self) -> None:
        with self._some(1) as nodes:
            self._freeze(nodes)

    def freeze_two(self) -> None:
        with self._some(2) as nodes:
            self._freeze(nodes)

    def _freeze(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            self._cluster.pause(node)
        self._wait(*FREEZE_S)
        for node in nodes:
            self._cluster.resume(node)

    def fill(self) -> None:
        """A node's disk has hardly any room left."""
        assert self._disks is not None
        with self._some(1) as nodes:
            for node in nodes:
                self._disks.fill(node, self._moments.choice((0, ROOM_BYTES)))
            self._wait(*CUT_S)
            for node in nodes:
                self._disks.free(node)

    def revive(self) -> None:
        """Start what has ended by itself, as a supervisor does."""
        for node in self._cluster.node_ids:
            with self._claimed([node]) as nodes:
                if nodes and node not in self._cluster.running:
                    self._start(node)

    # The ways between them, and those of clients.

    def cut(self) -> None:
        with self._some(1) as nodes:
            self._cut_off([self._links.to[node] for node in nodes])

    def cut_two(self) -> None:
        with self._some(2) as nodes:
            self._cut_off([self._links.to[node] for node in nodes])

    def cut_from_all(self) -> None:
        """Neither brokers nor clients reach a node, nor it etcd."""
        with self._some(1) as nodes:
            self._cut_off(self._all_ways(nodes))

    def cut_from_clients(self) -> None:
        with self._some(1) as nodes:
            self._cut_off([self._links.of_clients[node] for node in nodes])

    def cut_from_etcd(self) -> None:
        with self._some(1) as nodes:
            self._cut_off([link for node in nodes for link in self._to_etcd[node]])

    def black_hole(self) -> None:
        """What clients and brokers send to a node is swallowed, and so is what it sends on these connections."""
        with self._some(1) as nodes:
            links = self._all_ways(nodes)
            for link in links:
                link.swallow()
            self._wait(*CUT_S)
            for link in links:
                link.mend()

    def delay(self) -> None:
        """All that a node is sent and answers takes longer."""
        with self._some(1) as nodes:
            links = self._all_ways(nodes)
            for link in links:
                link.delay_s = self._moments.uniform(0, SLOW_S)
            self._wait(*CUT_S)
            for link in links:
                link.delay_s = 0.0

    def reset(self) -> None:
        for link in (*self._links.to.values(), *self._links.of_clients.values()):
            link.reset()

    def _all_ways(self, nodes: Sequence[int]) -> list[Link]:
        links = self._links
        return [
            link
            for node in nodes
            for link in (links.to[node], *filter(None, [links.of_clients.get(node)]), *self._to_etcd.get(node, ()))
        ]

    def _cut_off(self, links: Sequence[Link]) -> None:
        for link in links:
            link.cut()
        self._wait(*CUT_S)
        for link in links:
            link.mend()

    # etcd.

    def kill_etcd(self) -> None:
        with self._members() as members:
            self._kill_members(members)

    def kill_member(self) -> None:
        """One of several: the others go on."""
        with self._members(1) as members:
            self._kill_members(members)

    def _kill_members(self, members: Sequence[int]) -> None:
        with self._without(members):
            self._wait(*CUT_S)

    def freeze_etcd(self) -> None:
        with self._members() as members:
            self._freeze_members(members)

    def freeze_member(self) -> None:
        with self._members(1) as members:
            self._freeze_members(members)

    def _freeze_members(self, members: Sequence[int]) -> None:
        assert self._etcd is not None
        for member in members:
            self._etcd.pause(member)
        self._wait(*FREEZE_S)
        for member in members:
            self._etcd.resume(member)

    def kill_node_without_etcd(self) -> None:
        with self._some(1) as nodes:
            with self._members() as members, self._without(members):
                for node in nodes:
                    self._cluster.kill(node)
                self._wait(*UPTIME_S)
            self._start(*nodes)

    def cut_without_etcd(self) -> None:
        with self._some(1) as nodes, self._members() as members, self._without(members):
            self._cut_off([self._links.to[node] for node in nodes])

    @contextmanager
    def _without(self, members: Sequence[int]) -> Iterator[None]:
        assert self._etcd is not None
        for member in members:
            self._etcd.kill(member)
        yield
        for member in members:
            self._etcd.start_member(member)
        for member in members:
            self._etcd.wait_until_ready(member)

    # Below.

    def _start(self, *nodes: int) -> None:
        for node in nodes:
            for _ in range(_STARTS):
                try:
                    self._cluster.start(node)
                except (BrokerError, WaitTimeoutError, ClientError):
                    self.slow_starts += 1
                # One that runs and does not know the others yet may have been cut off by another fault.
                if node in self._cluster.running:
                    break
            else:
                raise AssertionError(f"node {node} has not started, {_STARTS} times; its log says why")

    @contextmanager
    def _some(self, count: int) -> Iterator[Sequence[int]]:
        """So many nodes that no other fault has hit; none if there are not so many."""
        with self._lock:
            free = [node for node in self._cluster.node_ids if node not in self._hit]
            chosen = self._moments.sample(free, count) if count <= len(free) else []
            self._hit.update(chosen)
        try:
            yield chosen
        finally:
            with self._lock:
                self._hit.difference_update(chosen)

    @contextmanager
    def _claimed(self, nodes: Sequence[int]) -> Iterator[Sequence[int]]:
        with self._lock:
            chosen = [node for node in nodes if node not in self._hit]
            self._hit.update(chosen)
        try:
            yield chosen
        finally:
            with self._lock:
                self._hit.difference_update(chosen)

    @contextmanager
    def _members(self, count: int = 0) -> Iterator[Sequence[int]]:
        """So many members of etcd that no other fault has hit, by default all; none if there are not so many."""
        assert self._etcd is not None
        with self._lock:
            members = range(len(self._etcd.clients))
            count = count or len(members)
            free = [member for member in members if member not in self._members_hit]
            chosen = self._moments.sample(free, count) if count <= len(free) else []
            self._members_hit.update(chosen)
        try:
            yield chosen
        finally:
            with self._lock:
                self._members_hit.difference_update(chosen)

    def _wait(self, least_s: float, most_s: float) -> None:
        time.sleep(self._moments.uniform(least_s, most_s))
