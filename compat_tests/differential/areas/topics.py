"""Topics and their configs: made, removed, made again, grown, described; values at, under and over their limits."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.draft import Draft

_STEPS = 40
_NAMES = ("~t0", "~t1", "~t.2", "~t_2")
#: Of what stands for `~` in a name (`Pair.new_prefix`).
_PREFIX_LENGTH = 13
_LONGEST_NAME = "~" + "n" * (249 - _PREFIX_LENGTH)
BAD_NAMES = ("", ".", "..", "a/b", "ü", _LONGEST_NAME, f"{_LONGEST_NAME}n", "~ ", "__cluster_metadata")
#: Settings of topics, with values that are in order, at a limit, beyond it, and nonsense.
CONFIGS: dict[str, tuple[str | None, ...]] = {
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact", "", "none", "DELETE", "delete,", None),
    "compression.type": ("producer", "gzip", "zstd", "snappy", "lz4", "uncompressed", "none", "GZIP", "", None),
    "compression.gzip.level": ("1", "9", "-1", "0", "10", ""),
    "compression.zstd.level": ("1", "22", "-131072", "-131073", "23", "0"),
    "compression.lz4.level": ("1", "17", "0", "18", "9"),
    "delete.retention.ms": ("0", "-1", "86400000", "x"),
    "file.delete.delay.ms": ("0", "-1", "60000"),
    "flush.messages": ("1", "0", "9223372036854775807", "9223372036854775808"),
    "flush.ms": ("0", "-1", "1000"),
    "index.interval.bytes": ("0", "-1", "4096", "2147483648"),
    "max.compaction.lag.ms": ("1", "0", "-1"),
    "max.message.bytes": ("0", "-1", "1000012", "2147483647", "2147483648", "1e3", " 1000 ", "1_000"),
    "message.timestamp.after.max.ms": ("0", "-1", "3600000", "9223372036854775807"),
    "message.timestamp.before.max.ms": ("0", "-1", "3600000", "9223372036854775807"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", ""),
    "min.cleanable.dirty.ratio": ("0", "1", "0.5", "-0.1", "1.1", "x", "NaN"),
    "min.compaction.lag.ms": ("0", "-1", "9223372036854775807"),
    "min.insync.replicas": ("1", "0", "2", "-1"),
    "preallocate": ("true", "false", "TRUE", "yes", ""),
    "retention.bytes": ("-1", "0", "-2", "1048576"),
    "retention.ms": ("-1", "0", "-2", "604800000"),
    "segment.bytes": ("1048576", "1048575", "14", "13", "2147483647", "0"),
    "segment.index.bytes": ("4", "3", "10485760"),
    "segment.jitter.ms": ("0", "-1", "5"),
    "segment.ms": ("1", "0", "604800000"),
    "unclean.leader.election.enable": ("true", "false", "maybe"),
    "remote.storage.enable": ("false", "true", ""),
    "local.retention.ms": ("-2", "-1", "-3", "0", "100"),
    "local.retention.bytes": ("-2", "-1", "-3", "0"),
    "leader.replication.throttled.replicas": ("*", "0:1", "", "x", "0:1,", "none"),
    "follower.replication.throttled.replicas": ("*", "0:1,1:1", "0:1:2"),
    "internal.segment.bytes": ("1000", "0"),
    "errors.deadletterqueue.group.enable": ("true", "false", "x"),
    "no.such.config": ("1", "", None),
    "": ("1",),
}


class Topics:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    @property
    def name(self) -> str:
        draft = self.draft
        if draft.chance(0.06):
            return draft.pick(BAD_NAMES)
        return draft.topic(draft.pick(_NAMES))

    @property
    def named_or_internal(self) -> str:
        """To be looked at only: all histories stand on the topics of the coordinators."""
        return self.draft.odd(self.name, "__consumer_offsets", "__transaction_state", chance=0.04)

    def some_names(self, count: int) -> list[str]:
        """Once each, but for few times: what is named twice is refused, and nothing else seen."""
        names = [self.name for _ in range(count)]
        return names if self.draft.chance(0.1) else list(dict.fromkeys(names))

    def config(self) -> tuple[str, str | None]:
        name = self.draft.pick(list(CONFIGS))
        return name, self.draft.pick(CONFIGS[name])

    def configs(self, count: int) -> list[tuple[str, str | None]]:
        configs = [self.config() for _ in range(count)]
        return configs if self.draft.chance(0.1) else list(dict(configs).items())

    def create(self) -> None:
        draft = self.draft
        topics = []
        for name in self.some_names(draft.pick((1, 1, 1, 2, 3))):
            assignments: list[dict[str, Any]] = []
            if draft.chance(0.15):
                ids = draft.pick(([0], [0, 1], [1], [0, 2], [0, 0], [-1]))
                assignments = [{"partition_index": each, "broker_ids": draft.odd([1], [2], [], [1, 1])} for each in ids]
            has_counts = not assignments or draft.chance(0.1)
            configs = self.configs(draft.pick((0, 0, 1, 1, 2)))
            topics.append(
                {
                    "name": name,
                    "num_partitions": draft.odd(draft.pick((1, 2)), -1, 0, -2) if has_counts else -1,
                    "replication_factor": draft.odd(1, -1, 0, 2, -2, chance=0.08) if has_counts else -1,
                    "assignments": assignments,
                    "configs": [{"name": name, "value": value} for name, value in configs],
                }
            )
        fields = {"topics": topics, "timeout_ms": 10_000, "validate_only": draft.chance(0.15)}
        draft.ask("CREATE_TOPICS", fields, draft.version("CREATE_TOPICS"))

    def delete(self) -> None:
        draft = self.draft
        names = self.some_names(draft.pick((1, 1, 2)))
        topics = [{"name": name} for name in names]
        if draft.chance(0.15):
            topics.append({"name": None, "topic_id": {"$uuid": "00000000-0000-0000-0000-00000000beef"}})  # type: ignore[dict-item]
        if draft.chance(0.05):
            topics.append({"name": names[0], "topic_id": {"$uuid": "00000000-0000-0000-0000-00000000beef"}})  # type: ignore[dict-item]
        draft.ask("DELETE_TOPICS", {"topics": topics, "topic_names": names, "timeout_ms": 10_000})

    def grow(self) -> None:
        draft = self.draft
        topics = []
        for name in self.some_names(draft.pick((1, 1, 2))):
            count = draft.odd(draft.pick((2, 3, 4)), 0, 1, -1, chance=0.2)
            assignments = [{"broker_ids": draft.pick(([1], [2], [], [1, 1]))}] if draft.chance(0.2) else None
            topics.append({"name": name, "count": count, "assignments": assignments})
        fields = {"topics": topics, "timeout_ms": 10_000, "validate_only": draft.chance(0.15)}
        draft.ask("CREATE_PARTITIONS", fields)

    def alter(self) -> None:
        draft = self.draft
        resources = []
        for name in self.some_names(draft.pick((1, 1, 2))):
            configs = self.configs(draft.pick((1, 1, 1, 2, 3)))
            resources.append(
                {
                    "resource_type": draft.odd(2, 0, 3, 99, chance=0.02),
                    "resource_name": name,
                    "configs": [
                        {
                            "name": name,
                            "config_operation": draft.odd(draft.pick((0, 0, 1, 2, 3)), 4, -1, chance=0.03),
                            "value": value,
                        }
                        for name, value in configs
                    ],
                }
            )
        draft.ask("INCREMENTAL_ALTER_CONFIGS", {"resources": resources, "validate_only": draft.chance(0.15)})

    def replace(self) -> None:
        """AlterConfigs sets all that a topic has."""
        draft = self.draft
        configs = self.configs(draft.pick((0, 1, 2)))
        listed = [{"name": name, "value": value} for name, value in configs]
        resource = {"resource_type": 2, "resource_name": self.name, "configs": listed}
        draft.ask("ALTER_CONFIGS", {"resources": [resource], "validate_only": draft.chance(0.15)})

    def describe(self) -> None:
        draft = self.draft
        keys = draft.odd([self.config()[0] for _ in range(3)], [], chance=0.05)
        resource = {"resource_type": 2, "resource_name": self.named_or_internal, "configuration_keys": keys}
        fields = {"resources": [resource], "include_synonyms": draft.chance(0.5)}
        draft.ask("DESCRIBE_CONFIGS", fields)

    def metadata(self) -> None:
        draft = self.draft
        topics = [{"name": self.named_or_internal} for _ in range(draft.pick((1, 1, 2)))]
        fields = {"topics": topics, "allow_auto_topic_creation": draft.chance(0.1)}
        version = draft.version("METADATA")
        if version < 4:
            # Versions that cannot say it make the topic.
            version = 4
        draft.ask("METADATA", fields, version)

    def describe_partitions(self) -> None:
        draft = self.draft
        cursor = (
            {"topic_name": self.named_or_internal, "partition_index": draft.pick((0, 1, -1, 9))}
            if draft.chance(0.3)
            else None
        )
        topics = sorted({self.named_or_internal for _ in range(draft.pick((1, 2)))})
        fields = {
            "topics": [{"name": name} for name in topics],
            "response_partition_limit": draft.odd(2000, 1, 0, -1, chance=0.2),
            "cursor": cursor,
        }
        draft.ask("DESCRIBE_TOPIC_PARTITIONS", fields)

    def reassign(self) -> None:
        draft = self.draft
        partition = {"partition_index": draft.odd(0, 7, -1), "replicas": draft.pick(([1], [2], [], None, [1, 1], [-1]))}
        fields = {
            "timeout_ms": 10_000,
            "allow_replication_factor_change": draft.chance(0.8),
            "topics": [{"name": self.name, "partitions": [partition]}],
        }
        draft.ask("ALTER_PARTITION_REASSIGNMENTS", fields)
        listed = {"name": self.name, "partition_indexes": [0, 7]}
        draft.ask("LIST_PARTITION_REASSIGNMENTS", {"timeout_ms": 10_000, "topics": [listed]})

    def elect(self) -> None:
        draft = self.draft
        topics = [{"topic": self.name, "partitions": draft.pick(([0], [7], [0, 1], [-1]))}]
        draft.ask(
            "ELECT_LEADERS", {"election_type": draft.odd(0, 1, 2), "topic_partitions": topics, "timeout_ms": 10_000}
        )


def write(draft: Draft) -> None:
    topics = Topics(draft)
    topics.create()
    actions = (
        topics.create, topics.delete, topics.grow, topics.alter, topics.replace, topics.describe, topics.metadata,
        topics.describe_partitions, topics.reassign, topics.elect,
    )  # fmt: skip
    while len(draft) < _STEPS:
        draft.random.choices(actions, (5, 2, 2, 7, 1.5, 3, 2, 1, 1, 0.7))[0]()
