"""Moving replicas between brokers, for `ottla cluster drain` and `balance` and for another replication factor.

What moves where is decided here; the brokers carry it out, as they do for Kafka's kafka-reassign-partitions.sh.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cli import CommandError
from ottla.cli.options import counted
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.kproto.messages.topics.list_partition_reassignments import ListPartitionReassignmentsRequest

_POLL_SECONDS: Final = 0.2


class Placed(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


Replicas = Mapping[Placed, Sequence[int]]


class Cluster(NamedTuple):
    """The brokers that are alive, with their racks, and where every partition's replicas are."""

    racks: Mapping[int, str | None]
    replicas: Replicas


def drain(client: Client, arguments: Namespace) -> None:
    """Move every replica of a broker to another one."""
    cluster = _cluster(client)
    others = {broker: rack for broker, rack in cluster.racks.items() if broker != arguments.broker}
    _carry_out(client, cluster, plan_drain(arguments.broker, Cluster(others, cluster.replicas)), arguments)


def balance(client: Client, arguments: Namespace) -> None:
    """Move replicas from the brokers that hold most to those that hold least."""
    cluster = _cluster(client)
    _carry_out(client, cluster, plan_balance(cluster), arguments)


def change_replication_factor(client: Client, topic: str, count: int) -> None:
    """Give every partition of a topic this many replicas, and wait until they are in sync."""
    cluster = _cluster(client)
    client.topic(topic)  # says what to do about a topic that does not exist
    partitions = {placed: replicas for placed, replicas in cluster.replicas.items() if placed.topic == topic}
    _carry_out(client, cluster, plan_replication_factor(partitions, count, cluster), None)


def plan_drain(broker: int, others: Cluster) -> dict[Placed, list[int]]:
    """The replicas of each partition without a broker: in its place comes the broker that holds least."""
    loads = _loads(others)
    moves = {}
    for placed, replicas in others.replicas.items():
        if broker in replicas:
            target = _least_loaded(loads, others.racks, [it for it in replicas if it != broker])
            if target is None:
                raise CommandError(
                    f"{placed.topic}-{placed.partition} needs a broker for each replica ({len(replicas)}), and only "
                    f"{len(others.racks)} others are alive: lower its --replication-factor, or start another broker"
                )
            loads[target] += 1
            moves[placed] = [target if it == broker else it for it in replicas]
    return moves


def plan_balance(cluster: Cluster) -> dict[Placed, list[int]]:
    """Moves until no broker holds at least two replicas more than another that could take one."""
    loads = _loads(cluster)
    now = {placed: list(replicas) for placed, replicas in cluster.replicas.items()}
    held: dict[int, list[Placed]] = {broker: [] for broker in loads}
    for placed, replicas in now.items():
        for broker in replicas:
            if broker in held:
                held[broker].append(placed)
    moved: dict[Placed, list[int]] = {}
    while loads:
        most, least = max(loads, key=lambda it: loads[it]), min(loads, key=lambda it: loads[it])
        if loads[most] - loads[least] < 2:
            break
        # First those that do not lead; none that the other broker holds already.
        candidates = [placed for placed in held[most] if least not in now[placed]]
        if not candidates:
            break
        placed = max(candidates, key=lambda it: now[it].index(most))
        now[placed][now[placed].index(most)] = least
        held[most].remove(placed)
        held[least].append(placed)
        loads[most] -= 1
        loads[least] += 1
        moved[placed] = now[placed]
    return {placed: replicas for placed, replicas in moved.items() if replicas != list(cluster.replicas[placed])}


def plan_replication_factor(partitions: Replicas, count: int, cluster: Cluster) -> dict[Placed, list[int]]:
    """The first replicas stay; the broker that holds least joins, from another rack if there is one."""
    if count < 1:
        raise CommandError("a topic has at least one replica")
    if count > len(cluster.racks):
        raise CommandError(f"{count} replicas need as many brokers; alive: {len(cluster.racks)}")
    loads = _loads(cluster)
    moves = {}
    for placed, replicas in partitions.items():
        wanted = list(replicas[:count])
        while len(wanted) < count:
            target = _least_loaded(loads, cluster.racks, wanted)
            assert target is not None, "there are as many brokers as replicas"
            loads[target] += 1
            wanted.append(target)
        if wanted != list(replicas):
            moves[placed] = wanted
    return moves


def _loads(cluster: Cluster) -> dict[int, int]:
    counted = Counter(broker for replicas in cluster.replicas.values() for broker in replicas)
    return {broker: counted[broker] for broker in sorted(cluster.racks)}


def _least_loaded(loads: Mapping[int, int], racks: Mapping[int, str | None], taken: Sequence[int]) -> int | None:
    used = {racks.get(broker) for broker in taken}
    free = [broker for broker in loads if broker not in taken]
    return min(free, key=lambda broker: (racks[broker] in used, loads[broker]), default=None)


def _cluster(client: Client) -> Cluster:
    answer = client.metadata(None)
    replicas = {
        Placed(topic.name or "", partition.partition_index): partition.replica_nodes
        for topic in answer.topics
        for partition in topic.partitions
    }
    return Cluster({broker.node_id: broker.rack for broker in answer.brokers}, replicas)


def _carry_out(
    client: Client, cluster: Cluster, moves: Mapping[Placed, list[int]], arguments: Namespace | None
) -> None:
    for placed, replicas in sorted(moves.items()):
        print(f"{placed.topic}-{placed.partition}: {_listed(cluster.replicas[placed])} -> {_listed(replicas)}")
    if not moves:
        print("nothing has to move")
    if not moves or (arguments is not None and arguments.dry_run):
        return
    topics: dict[str, ReassignableTopic] = {}
    for placed, replicas in moves.items():
        topic = topics.setdefault(placed.topic, ReassignableTopic(name=placed.topic))
        topic.partitions.append(ReassignablePartition(partition_index=placed.partition, replicas=replicas))
    response = client.call_controller(AlterPartitionReassignmentsRequest(topics=list(topics.values())))
    if response.error_code:
        raise BrokerError(response.error_code, response.error_message)
    failures = [
        str(BrokerError(it.error_code, it.error_message, what=f"{topic.name}-{it.partition_index}"))
        for topic in response.responses
        for it in topic.partitions
        if it.error_code
    ]
    if failures:
        raise CommandError("; ".join(failures))
    if arguments is None or not arguments.no_wait:
        _wait(client, moves)


def _wait(client: Client, moves: Mapping[Placed, list[int]]) -> None:
    """Wait until none of these is under way any more: the new replicas are in sync, and the old ones are gone."""
    while True:
        response = client.call_controller(ListPartitionReassignmentsRequest())
        if response.error_code:
            raise BrokerError(response.error_code, response.error_message)
        under_way = {Placed(topic.name, it.partition_index) for topic in response.topics for it in topic.partitions}
        if not under_way & moves.keys():
            print(f"{counted(len(moves), 'partition')} moved")
            return
        time.sleep(_POLL_SECONDS)


def _listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
