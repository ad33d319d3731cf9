"""Records: produced in odd batches, codecs and framings, fetched from odd places, looked up by time, deleted."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.batches import A_TIME_MS, FRAMINGS_OF
from compat_tests.differential.draft import Draft

_STEPS = 40
_UNKNOWN_TOPIC = {"$uuid": "00000000-0000-0000-0000-00000000dead"}
_CONFIGS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"compression.type": "zstd"},
    {"compression.type": "gzip"},
    {"compression.type": "uncompressed"},
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"max.message.bytes": "300"},
    {"message.timestamp.before.max.ms": "3600000"},
)


class _Records:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        count = draft.pick((1, 1, 2))
        # Old timestamps are due for removal at once, which both brokers do at times of their own.
        keep = {"retention.ms": "-1"}
        self.topics = [
            draft.create_topic(partitions=draft.pick((1, 2)), **keep, **draft.pick(_CONFIGS)) for _ in range(count)
        ]

    @property
    def topic(self) -> str:
        return self.draft.odd(self.draft.pick(self.topics), "~unknown", "", chance=0.03)

    @property
    def partition(self) -> int:
        return self.draft.odd(self.draft.pick((0, 0, 0, 1)), 9, -1, chance=0.04)

    @property
    def offset(self) -> int:
        return self.draft.odd(self.draft.random.randrange(12), -1, -2, 2**40, chance=0.08)

    def batch(self) -> dict[str, Any]:
        draft = self.draft
        count = draft.pick((1, 1, 2, 3, 5))
        codec = draft.odd(0, *FRAMINGS_OF, 5, 7, chance=0.45)
        spec: dict[str, Any] = {
            "values": [draft.odd("value " * draft.pick((1, 3, 60)), None, "", chance=0.1) for _ in range(count)],
            "keys": [draft.odd("k", None, "", chance=0.3) for _ in range(count)],
            "codec": codec,
            "timestamp": draft.odd(A_TIME_MS + draft.random.randrange(100), -1, 0, {"$now": 0}, {"$now": 7_200_000}),
            "step_ms": draft.odd(1, 0, -1, 1000, chance=0.2),
        }
        if codec in FRAMINGS_OF and codec:
            spec["wrap"] = draft.odd(FRAMINGS_OF[codec][0], *FRAMINGS_OF[codec], "none", chance=0.4)
            if draft.chance(0.15):
                spec["tail"] = draft.pick(("00", "00" * 8, "616263", "ffff"))
        if draft.chance(0.15):
            spec["headers"] = draft.pick(([["h", "v"]], [["h", None], ["h", ""]], [["", "v"]]))
        if draft.chance(0.08):
            spec["flags"] = draft.pick((0x08, 0x10, 0x20, 0x30, 0x40, 0x80, 0x100))
        if draft.chance(0.1):
            spec["header"] = draft.pick(
                (
                    {"record_count": 0}, {"record_count": count + 1}, {"record_count": -1},
                    {"last_offset_delta": count},
                    {"last_offset_delta": -1}, {"base_offset": 77}, {"leader_epoch": 9}, {"magic": 1}, {"magic": 0},
                    {"magic": 3}, {"max_timestamp_ms": 5}, {"max_timestamp_ms": -1}, {"base_timestamp_ms": -1},
                    {"producer_id": 99}, {"producer_epoch": 3}, {"base_sequence": 4},
                )
            )  # fmt: skip
        if draft.chance(0.05):
            spec["spoil"] = [draft.random.randrange(100), draft.pick((1, 255))]
        return spec

    def produce(self) -> None:
        draft = self.draft
        batches = [self.batch() for _ in range(draft.odd(1, 2, 0, chance=0.06))]
        records = draft.odd({"$batches": batches}, None, {"$bytes": ""}, {"$bytes": "00" * 70}, chance=0.04)
        topic = self.topic
        data = [{"index": self.partition, "records": records}]
        if draft.chance(0.06):
            data.append({"index": data[0]["index"], "records": {"$batches": [self.batch()]}})
        fields = {
            "transactional_id": draft.odd(None, "~x", chance=0.02),
            "acks": draft.odd(-1, 1, 0, 2, -2, chance=0.15),
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "topic_id": draft.topic_id(topic), "partition_data": data}],
        }
        draft.ask("PRODUCE", fields)

    def fetch(self) -> None:
        draft = self.draft
        topic = self.topic
        partition = {
            "partition": self.partition,
            "current_leader_epoch": draft.odd(-1, {"$epoch": 0}, {"$epoch": 1}, {"$epoch": 9}, -2, chance=0.2),
            "fetch_offset": self.offset,
            "last_fetched_epoch": draft.odd(-1, {"$epoch": 0}, {"$epoch": 5}, chance=0.05),
            "partition_max_bytes": draft.odd(1 << 20, 1, 0, -1, 100, chance=0.15),
        }
        fields = {
            "max_wait_ms": 0,
            "min_bytes": draft.odd(0, 1, chance=0.2),
            "max_bytes": draft.odd(1 << 20, 1, 0, -1, chance=0.1),
            "isolation_level": draft.odd(draft.pick((0, 1)), 2, -1, chance=0.05),
            "rack_id": draft.odd("", "rack", chance=0.05),
            **self.follower(),
            "session_id": draft.odd(0, 1, -1, 12345, chance=0.05),
            "session_epoch": draft.odd(-1, 0, 1, chance=0.2),
            "topics": [{"topic": topic, "topic_id": draft.topic_id(topic), "partitions": [partition]}],
        }
        draft.ask("FETCH", fields)

    def follower(self) -> dict[str, Any]:
        """As a broker that has no replica of it asks, or an administrator's tool."""
        draft = self.draft
        replica_id = draft.odd(-1, 2, -2, -3, chance=0.04)
        return {"replica_id": replica_id, "replica_state": {"replica_id": replica_id, "replica_epoch": -1}}

    def fetch_in_a_session(self) -> None:
        draft = self.draft
        topic = self.topic
        partition = {"partition": self.partition, "fetch_offset": self.offset, "partition_max_bytes": 1 << 20}
        topics = [{"topic": topic, "topic_id": draft.topic_id(topic), "partitions": [partition]}]
        fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics}
        version = draft.random.randint(7, 17)
        first = draft.ask("FETCH", fields | {"session_id": 0, "session_epoch": 0}, version)
        for epoch in range(1, draft.random.randint(2, 4)):
            going_on = {"session_id": first.ref("session_id", 0), "session_epoch": draft.odd(epoch, epoch + 1, -1, 0)}
            named = draft.pick(([], topics))
            forgotten = [{"topic": topic, "topic_id": draft.topic_id(topic), "partitions": [partition["partition"]]}]
            more = {"topics": named, "forgotten_topics_data": draft.odd([], forgotten, chance=0.2)}
            draft.ask("FETCH", fields | going_on | more, version)
            if draft.chance(0.4):
                self.produce()

    def list_offsets(self) -> None:
        draft = self.draft
        times = (-1, -2, -3, -4, -5, -6, -7, 0, A_TIME_MS, A_TIME_MS + 3, A_TIME_MS + 5000, 2**62)
        partitions = [
            {
                "partition_index": self.partition,
                "current_leader_epoch": draft.odd(-1, {"$epoch": 0}, {"$epoch": 1}, -2, chance=0.15),
                "timestamp": draft.pick(times),
            }
            for _ in range(draft.pick((1, 1, 2)))
        ]
        fields = {
            "replica_id": draft.odd(-1, 0, 1, -2, -3, chance=0.08),
            "isolation_level": draft.odd(draft.pick((0, 1)), 2, -1, chance=0.05),
            "timeout_ms": draft.odd(10_000, 0, chance=0.1),
            "topics": [{"name": self.topic, "partitions": partitions}],
        }
        draft.ask("LIST_OFFSETS", fields)

    def delete(self) -> None:
        draft = self.draft
        partitions = [{"partition_index": self.partition, "offset": self.offset} for _ in range(draft.odd(1, 2))]
        fields = {"topics": [{"name": self.topic, "partitions": partitions}], "timeout_ms": 10_000}
        draft.ask("DELETE_RECORDS", fields)

    def epochs(self) -> None:
        draft = self.draft
        partition = {
            "partition": self.partition,
            "current_leader_epoch": draft.odd(-1, {"$epoch": 0}, {"$epoch": 5}, chance=0.2),
            "leader_epoch": draft.odd({"$epoch": 0}, -1, {"$epoch": 1}, {"$epoch": 5}, chance=0.3),
        }
        topics = [{"topic": self.topic, "partitions": [partition]}]
        draft.ask("OFFSET_FOR_LEADER_EPOCH", {"replica_id": draft.odd(-1, -2, 1), "topics": topics})


def write(draft: Draft) -> None:
    records = _Records(draft)
    actions = (
        records.produce, records.fetch, records.fetch_in_a_session, records.list_offsets, records.delete,
        records.epochs,
    )  # fmt: skip
    while len(draft) < _STEPS:
        draft.random.choices(actions, (9, 6, 0.6, 4, 1.2, 1))[0]()
