"""Reconciles the topics found in folders of several nodes (`ottla restore --metadata-from-data`).

Nodes were down at different times, so their folders are of different ages. The rules are those by which replicas agree
(KIP-101): of two logs the one with the later leader epoch counts, and of two with the same epoch the longer one. What
the rules do not decide is refused, unless the administrator names the node to believe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata import keys
from ottla.metadata.features import DEFAULT_FEATURES
from ottla.metadata.image import PartitionState
from ottla.metadata.keys import DescribedTopic, decode_described_topic
from ottla.metastore.store import Put
from ottla.storage.found_topics import FoundLog
from ottla.storage.kept_logs import KeptLog

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metastore.store import Operation
    from ottla.storage.found_topics import FoundTopic, FoundTopics


_UNSEEN_PRODUCER_IDS: Final = 1_000_000
"""How many ids may have been given to producers that no log remembers."""


class UndecidedError(Exception):
    """The folders contradict each other; the message says where, and in what."""


class Aside(NamedTuple):
    """A log that does not lead and is not in sync. `diverges_at` is the first offset that the leader has otherwise, or
    does not have; None if the leader has everything."""

    node_id: int
    topic_id: UUID
    topic: str
    partition: int
    log: FoundLog
    is_replica: bool
    diverges_at: int | None


class ChosenTopic(NamedTuple):
    """A topic as it will be written; it is guessed if nothing but its folders tells of it."""

    topic_id: UUID
    partitions: list[PartitionState]
    configs: Mapping[str, str]
    is_guessed: bool


class Choice(NamedTuple):
    """The topics by name; the logs that stay beside; and the topics whose name another, later one has: id and nodes."""

    topics: dict[str, ChosenTopic]
    aside: list[Aside]
    namesakes: list[tuple[str, UUID, tuple[int, ...]]]

    def kept_logs(self, node_id: int, now_ms: int) -> list[KeptLog]:
        """The logs that a node must keep until there is metadata by which they are truncated."""
        return [
            KeptLog(
                it.topic_id, it.partition, it.topic, it.log.start_offset, it.log.end_offset, now_ms, not it.is_replica
            )
            for it in self.aside
            if it.node_id == node_id
        ]


def choose(found: Mapping[int, FoundTopics], prefer: int | None = None) -> Choice:
    """Choose among the folders of these nodes. `prefer` is the node to believe where the rules do not decide.

    Raises UndecidedError with everything that it would have to decide.
    """
    copies: dict[UUID, dict[int, FoundTopic]] = defaultdict(dict)
    for node_id, of_node in found.items():
        for topic in of_node.topics:
            copies[topic.topic_id][node_id] = topic
    by_name: dict[str, list[UUID]] = defaultdict(list)
    for topic_id, of_topic in copies.items():
        by_name[_name_of(of_topic)].append(topic_id)
    epoch = max((of_node.largest_epoch for of_node in found.values()), default=-1) + 1
    choice = Choice({}, [], [])
    undecided: list[str] = []
    for name, topic_ids in sorted(by_name.items()):
        try:
            topic_id = _alive(name, {topic_id: copies[topic_id] for topic_id in topic_ids}, prefer)
            choice.topics[name] = _choose_topic(name, topic_id, copies[topic_id], found, epoch, prefer, choice.aside)
            choice.namesakes.extend([(name, other, tuple(copies[other])) for other in topic_ids if other != topic_id])
        except UndecidedError as error:
            undecided.append(str(error))
    if undecided:
        raise UndecidedError("; ".join(undecided))
    return choice


def metadata_of(choice: Choice, cluster_id: str, found: Mapping[int, FoundTopics]) -> list[Operation]:
    """The writes into an empty store. Leaders start in epochs, and producers with ids, that no record has."""
    epoch = max(of_node.largest_epoch for of_node in found.values()) + 1
    # No fewer than its folder has seen: it would take this metadata for an older copy.
    starts = {node_id: max(epoch, of_node.starts) for node_id, of_node in found.items()}
    producer_ids = max(of_node.largest_producer_id for of_node in found.values()) + 1 + _UNSEEN_PRODUCER_IDS
    operations: list[Operation] = [
        Put(keys.CLUSTER_ID, keys.encode(cluster_id)),
        Put(keys.PRODUCER_IDS, keys.encode(producer_ids)),
    ]
    operations += [Put(keys.feature(name), keys.encode(level)) for name, level in DEFAULT_FEATURES.items()]
    operations += [Put(keys.starts(node_id), keys.encode(count)) for node_id, count in starts.items()]
    for name, topic in choice.topics.items():
        replicas = [state.replicas for state in topic.partitions]
        operations.append(Put(keys.topic(name), keys.encode_topic(topic.topic_id, replicas, topic.configs)))
        operations += [
            Put(keys.partition(topic.topic_id, number), keys.encode_partition(state, starts))
            for number, state in enumerate(topic.partitions)
        ]
    return operations


def _descriptions(copies: Mapping[int, FoundTopic]) -> dict[int, list[DescribedTopic]]:
    """By node, what can be read of the descriptions of a topic; nodes without one are left out."""
    described: dict[int, list[DescribedTopic]] = {}
    for node_id, topic in copies.items():
        for content in topic.descriptions:
            try:
                one = decode_described_topic(content)
            except (ValueError, KeyError, TypeError):
                continue
            if one.topic_id == topic.topic_id:
                described.setdefault(node_id, []).append(one)
    return described


def _name_of(copies: Mapping[int, FoundTopic]) -> str:
    described = [each for of_node in _descriptions(copies).values() for each in of_node]
    return described[0].name if described else next(iter(copies.values())).name


def _alive(name: str, topics: Mapping[UUID, Mapping[int, FoundTopic]], prefer: int | None) -> UUID:
    """Of several topics of one name, the one that was made last: the others were deleted while a node was down.

    A topic is made after the one before it was deleted, so each of its segments was begun later.
    """
    ids = list(topics)
    for topic_id in ids:
        first_ms = min(copy.first_ms for copy in topics[topic_id].values())
        others = [copy.last_ms for other in ids if other != topic_id for copy in topics[other].values()]
        if all(last_ms < first_ms for last_ms in others):
            return topic_id
    preferred = [topic_id for topic_id in ids if prefer in topics[topic_id]]
    if len(preferred) == 1:
        return preferred[0]
    places = ", ".join(f"{each} ({_nodes(list(topics[each]))})" for each in ids)
    raise UndecidedError(f"there are {len(ids)} topics {name}, and it is not clear which one is the last: {places}")


def _choose_topic(
    name: str,
    topic_id: UUID,
    copies: Mapping[int, FoundTopic],
    found: Mapping[int, FoundTopics],
    epoch: int,
    prefer: int | None,
    aside: list[Aside],
) -> ChosenTopic:
    described = _descriptions(copies)
    everything = [each for of_node in described.values() for each in of_node]
    counts = [len(each.replicas) for each in everything] + [max(topic.logs) + 1 for topic in copies.values()]
    partitions = []
    for partition in range(max(counts)):
        logs = {node_id: topic.logs[partition] for node_id, topic in copies.items() if partition in topic.logs}
        best = _best(f"{name}-{partition}", logs, prefer)
        replicas, partition_epoch = _replicas(partition, described, best, list(logs or copies))
        if best and not set(best) & set(replicas):
            # The description is older than the log: a later epoch was led by a node that it does not name.
            replicas = (*best, *replicas)
        # A log that has other records in the leader's epochs cannot follow: it would not be found to differ.
        replicas = tuple(each for each in replicas if each not in logs or not _contradicts(logs[each], logs[best[0]]))
        # Where there are no records, all replicas are equal, as far as they are here.
        in_sync = [each for each in replicas if each in (best or found)] or list(replicas)
        state = PartitionState(in_sync[0], replicas, tuple(in_sync), epoch, max(epoch, partition_epoch + 1))
        partitions.append(state)
        for node_id, log in logs.items():
            if node_id not in in_sync and log.end_offset:
                diverges_at = _divergence(log, logs[best[0]])
                aside.append(Aside(node_id, topic_id, name, partition, log, node_id in replicas, diverges_at))
    newest = max(everything, key=lambda each: (sum(each.epochs), each.revision), default=None)
    return ChosenTopic(topic_id, partitions, {} if newest is None else newest.configs, is_guessed=newest is None)


def _best(name: str, logs: Mapping[int, FoundLog], prefer: int | None) -> list[int]:
    """The nodes whose logs have the longest valid history; they are equal."""
    if not logs:
        return []
    with_records = [log for log in logs.values() if log.epochs]
    latest = max(((log.latest_epoch, log.end_offset) for log in with_records), default=(-1, 0))

    def rank(log: FoundLog) -> tuple[int, int]:
        # An empty log has forgotten its epoch. If it ends where no other does, or at the end of the best, it has had
        # all of it, and its records have expired.
        known = log.latest_epoch if log.epochs or log.end_offset < latest[1] else latest[0]
        return known, log.end_offset

    highest = max(map(rank, logs.values()))
    best = [node_id for node_id, log in logs.items() if rank(log) == highest]
    contradicting = [node_id for node_id, log in logs.items() if _contradicts(log, logs[best[0]])]
    if not contradicting:
        return best
    if prefer in logs:
        return [node_id for node_id in logs if node_id == prefer]
    raise UndecidedError(
        f"the logs of {name} on {_nodes([best[0], *contradicting])} have other records in the same epochs"
    )


def _contradicts(log: FoundLog, other: FoundLog) -> bool:
    """Whether an epoch began at different offsets, though each epoch has only one leader, and so only one beginning.

    What a log has lost at its front does not count.
    """
    start = max(log.start_offset, other.start_offset)
    begun = {entry.epoch: entry.start_offset for entry in other.epochs if entry.start_offset > start}
    return any(
        begun.get(entry.epoch, entry.start_offset) != entry.start_offset
        for entry in log.epochs
        if entry.start_offset > start
    )


def _divergence(log: FoundLog, leader: FoundLog) -> int | None:
    """The first offset at which a log has what its leader does not have; None if there is none."""
    ends = _epoch_ends(leader)
    for epoch, end_offset, start_offset in _epoch_ends(log):
        if end_offset <= leader.start_offset:
            continue
        same = next((end for each, end, _ in ends if each == epoch), None)
        if same is None:
            return max(start_offset, leader.start_offset)
        if end_offset > same:
            return same
    return None


def _epoch_ends(log: FoundLog) -> list[tuple[int, int, int]]:
    """(epoch, end offset, start offset) of each epoch of a log."""
    starts = [entry.start_offset for entry in log.epochs]
    ends = [*starts[1:], log.end_offset]
    return [(entry.epoch, end, entry.start_offset) for entry, end in zip(log.epochs, ends, strict=False)]


def _replicas(
    partition: int, described: Mapping[int, Sequence[DescribedTopic]], best: list[int], holders: list[int]
) -> tuple[tuple[int, ...], int]:
    """(replicas, partition epoch) by the newest description; of several as new, by one of those with the best log.

    Without any, all who have a log are the replicas, the best first.
    """
    newest = max(
        (
            (each.epochs[partition], node_id in best, -node_id, each.replicas[partition])
            for node_id, of_node in described.items()
            for each in of_node
            if partition < len(each.replicas)
        ),
        default=None,
    )
    if newest is None:
        return tuple(dict.fromkeys([*best, *holders])), -1
    return newest[3], newest[0]


def _nodes(node_ids: list[int]) -> str:
    return f"node{'s' if len(node_ids) > 1 else ''} {', '.join(map(str, sorted(node_ids)))}"
