"""Producers, idempotent and transactional, of both versions: epochs, sequences, fencing, timeouts, late requests."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.draft import Asked, Draft

_STEPS = 40
#: Long enough for what a producer does at once.
_SHORT_TIMEOUT_MS = 500


class _Producer:
    """Goes by the identity that its last InitProducerId or EndTxn gave it."""

    def __init__(self, draft: Draft, topics: list[str], group: str) -> None:
        self.draft = draft
        self.topics = topics
        self.group = group
        self.id = None if draft.chance(0.15) else draft.transactional_id()
        #: Transactions of version 2 add partitions by producing, and raise the epoch at each end.
        self.is_v2 = draft.chance(0.5)
        self.identity: Asked | None = None
        self.before: Asked | None = None
        self.sequences: dict[tuple[str, int], int] = {}
        self.timeout_ms = draft.odd(600_000, _SHORT_TIMEOUT_MS, chance=0.2)

    def _identity(self) -> dict[str, Any]:
        draft = self.draft
        asked = draft.odd(self.identity, self.before, chance=0.05)
        producer_id: Any = -1
        epoch: Any = -1
        if asked is not None:
            producer_id, epoch = asked.ref("producer_id", -1), asked.ref("producer_epoch", -1)
        if asked is not None and draft.chance(0.06):
            epoch = draft.pick((asked.ref("producer_epoch", 0, 1), asked.ref("producer_epoch", 0, -1), 0, 32_767))
        return {"producer_id": draft.odd(producer_id, 424_242, -1, chance=0.03), "producer_epoch": epoch}

    def _named(self) -> str:
        return self.draft.odd(self.id or "~none", "", "~unheard", chance=0.03)

    def init(self) -> None:
        draft = self.draft
        recovers = self.identity is not None and draft.chance(0.45)
        fields = {
            "transactional_id": draft.odd(self.id, "", None, chance=0.02),
            "transaction_timeout_ms": draft.odd(self.timeout_ms, 0, -1, 900_001, chance=0.04),
            **(self._identity() if recovers else {"producer_id": -1, "producer_epoch": -1}),
        }
        version = draft.version("INIT_PRODUCER_ID", 3 if recovers else 0)
        self._takes(draft.ask("INIT_PRODUCER_ID", fields, version))

    def _takes(self, asked: Asked) -> None:
        self.before, self.identity = self.identity, asked
        self.sequences.clear()

    def add_partitions(self) -> None:
        draft = self.draft
        identity = self._identity()
        topics = [
            {
                "name": draft.odd(draft.pick(self.topics), "~unknown", chance=0.05),
                "partitions": draft.odd([0], [0, 1], [], [9]),
            }
        ]
        transaction = {
            "transactional_id": self._named(),
            **identity,
            "verify_only": draft.chance(0.2),
            "topics": topics,
        }
        fields = {
            "v3_and_below_transactional_id": self._named(),
            "v3_and_below_producer_id": identity["producer_id"],
            "v3_and_below_producer_epoch": identity["producer_epoch"],
            "v3_and_below_topics": topics,
            "transactions": [transaction],
        }
        draft.ask("ADD_PARTITIONS_TO_TXN", fields, draft.odd(3, 0, 1, 2, 4, 5, chance=0.3))

    def produce(self) -> None:
        draft = self.draft
        topic, partition = draft.pick(self.topics), draft.odd(0, 1, chance=0.2)
        expected = self.sequences.get((topic, partition), 0)
        count = draft.pick((1, 2))
        sequence = draft.odd(expected, expected + 1, max(expected - 1, 0), 0, -1, chance=0.1)
        identity = self._identity()
        is_transactional = self.id is not None and not draft.chance(0.04)
        batch = {
            "values": ["v"] * count,
            "producer_id": identity["producer_id"],
            "epoch": identity["producer_epoch"],
            "sequence": sequence,
            "flags": 0x10 if is_transactional else 0,
        }
        data = [{"index": partition, "records": {"$batches": [batch]}}]
        fields = {
            "transactional_id": draft.odd(self.id if is_transactional else None, None, "~unheard", chance=0.04),
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "topic_id": draft.topic_id(topic), "partition_data": data}],
        }
        version = draft.odd(12 if self.is_v2 else 11, 8, 13, chance=0.1)
        draft.ask("PRODUCE", fields, version)
        if draft.chance(0.1):
            draft.ask("PRODUCE", fields, version)
        if sequence == expected:
            self.sequences[topic, partition] = expected + count

    def add_offsets(self) -> None:
        draft = self.draft
        fields = {
            "transactional_id": self._named(),
            **self._identity(),
            "group_id": draft.odd(self.group, "", chance=0.05),
        }
        draft.ask("ADD_OFFSETS_TO_TXN", fields)

    def commit_offsets(self) -> None:
        draft = self.draft
        partition = {
            "partition_index": draft.odd(0, 1, 9),
            "committed_offset": draft.random.randrange(9),
            "committed_leader_epoch": draft.odd(-1, 0, 5, chance=0.2),
            "committed_metadata": draft.odd("m", None, "", "m" * 4097, chance=0.1),
        }
        topic = draft.odd(draft.pick(self.topics), "~unknown")
        fields = {
            "transactional_id": self._named(),
            "group_id": draft.odd(self.group, "", chance=0.05),
            **self._identity(),
            "generation_id_or_member_epoch": draft.odd(-1, 0, 5, chance=0.06),
            "member_id": draft.odd("", "~nobody", chance=0.06),
            "group_instance_id": draft.odd(None, "~i0", chance=0.04),
            "topics": [{"name": topic, "topic_id": draft.topic_id(topic), "partitions": [partition]}],
        }
        version = draft.pick((5, 6)) if self.is_v2 else 4
        draft.ask("TXN_OFFSET_COMMIT", fields, draft.odd(version, 0, 1, 2, 3, chance=0.2))

    def end(self) -> None:
        draft = self.draft
        fields = {"transactional_id": self._named(), **self._identity(), "committed": draft.chance(0.6)}
        version = draft.odd(5 if self.is_v2 else 4, 0, 1, 2, 3, chance=0.15)
        asked = draft.ask("END_TXN", fields, version)
        if version == 5:
            self._takes(asked)
        if draft.chance(0.08):
            draft.ask("END_TXN", fields, version)

    def transaction(self) -> None:
        """As a client does it."""
        draft = self.draft
        if self.identity is None or draft.chance(0.1):
            self.init()
        for _ in range(draft.pick((1, 1, 2))):
            if not self.is_v2:
                self.add_partitions()
            self.produce()
        if draft.chance(0.3):
            if not self.is_v2:
                self.add_offsets()
            self.commit_offsets()
        if draft.chance(0.8):
            self.end()

    def time_out(self) -> None:
        """What it has left open is over before anybody does anything else."""
        if self.timeout_ms == _SHORT_TIMEOUT_MS and self.id is not None:
            self.draft.await_end(self.id, 8 * _SHORT_TIMEOUT_MS)


class _Looking:
    def __init__(self, draft: Draft, topics: list[str], group: str, producers: list[_Producer]) -> None:
        self.draft = draft
        self.topics = topics
        self.group = group
        self.producers = producers

    def fetch(self) -> None:
        draft = self.draft
        partition = {"partition": 0, "fetch_offset": draft.random.randrange(4), "partition_max_bytes": 1 << 20}
        topic = draft.pick(self.topics)
        fields = {
            "max_wait_ms": 0,
            "max_bytes": 1 << 20,
            "isolation_level": draft.odd(1, 0),
            "topics": [{"topic": topic, "topic_id": draft.topic_id(topic), "partitions": [partition]}],
        }
        draft.ask("FETCH", fields)

    def list_offsets(self) -> None:
        draft = self.draft
        partitions = [{"partition_index": 0, "timestamp": draft.pick((-1, -2, -3, 1_600_000_000_000))}]
        topics = [{"name": draft.pick(self.topics), "partitions": partitions}]
        draft.ask("LIST_OFFSETS", {"replica_id": -1, "isolation_level": draft.pick((0, 1)), "topics": topics})

    def describe(self) -> None:
        draft = self.draft
        ids = [producer.id for producer in self.producers if producer.id]
        draft.ask("DESCRIBE_TRANSACTIONS", {"transactional_ids": draft.odd(ids, ["~unheard"], [""], chance=0.1)})

    def list(self) -> None:
        draft = self.draft
        fields = {
            "state_filters": draft.pick(([], ["Ongoing"], ["CompleteCommit", "Empty"], ["nonsense"])),
            "producer_id_filters": draft.odd([], [424_242], [-1], chance=0.15),
            "duration_filter": draft.odd(-1, 0, 600_000, chance=0.2),
            "transactional_id_pattern": draft.odd(None, "", ".*-x0", "~x.", "(", "~x", chance=0.4),
        }
        draft.ask("LIST_TRANSACTIONS", fields)

    def producers_of(self) -> None:
        topics = [{"name": self.draft.pick(self.topics), "partition_indexes": [0, 9]}]
        self.draft.ask("DESCRIBE_PRODUCERS", {"topics": topics})

    def offsets(self) -> None:
        draft = self.draft
        topics = [{"name": name, "partition_indexes": [0, 1]} for name in self.topics]
        group = {"group_id": self.group, "topics": topics}
        draft.ask("OFFSET_FETCH", {"groups": [group], "require_stable": draft.chance(0.5)}, draft.pick((8, 9)))

    def markers(self) -> None:
        """As an administrator aborts a hanging transaction."""
        draft = self.draft
        identity = draft.pick(self.producers)._identity()
        topics = [{"name": draft.pick(self.topics), "partition_indexes": draft.odd([0], [0, 1], [9], [], chance=0.2)}]
        marker = identity | {
            "transaction_result": draft.chance(0.3),
            "topics": topics,
            # How many epochs a start takes is the brokers' own affair: no run has so many.
            "coordinator_epoch": draft.odd(0, -1, 5_000),
            "transaction_version": draft.odd(0, 1, 2, 3, chance=0.3),
        }
        draft.ask("WRITE_TXN_MARKERS", {"markers": [marker]})


def write(draft: Draft) -> None:
    topics = [draft.create_topic(partitions=2, **{"retention.ms": "-1"}) for _ in range(draft.pick((1, 1, 2)))]
    group = draft.group()
    producers = [_Producer(draft, topics, group) for _ in range(draft.pick((1, 1, 2)))]
    looking = _Looking(draft, topics, group, producers)
    looks = (
        looking.fetch, looking.list_offsets, looking.describe, looking.list, looking.producers_of, looking.offsets,
        looking.markers,
    )  # fmt: skip
    while len(draft) < _STEPS:
        producer = draft.pick(producers)
        if draft.chance(0.75):
            actions = (
                producer.transaction, producer.init, producer.add_partitions, producer.produce, producer.add_offsets,
                producer.commit_offsets, producer.end,
            )  # fmt: skip
            draft.random.choices(actions, (5, 2, 1, 2, 0.7, 0.7, 2))[0]()
            producer.time_out()
        else:
            draft.random.choices(looks, (3, 2, 2, 1, 2, 2, 0.3))[0]()
