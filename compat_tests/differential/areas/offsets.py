"""Offsets of groups without members: commit, fetch and delete by name and by id, also of what is not there."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.draft import Draft

_STEPS = 40


class _Offsets:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.groups = [draft.group() for _ in range(draft.pick((1, 2)))]
        self.topics = [draft.create_topic(partitions=draft.pick((1, 3))) for _ in range(draft.pick((1, 2, 3)))]

    @property
    def group(self) -> str:
        return self.draft.odd(self.draft.pick(self.groups), "", "~nobody", "consumer/ü", chance=0.04)

    def names(self) -> list[str]:
        draft = self.draft
        names = draft.random.sample(self.topics, draft.random.randint(1, len(self.topics)))
        if draft.chance(0.12):
            names.insert(draft.random.randint(0, len(names)), draft.pick(("~unknown", "bad/name", "", *self.topics)))
        return names

    def commit(self) -> None:
        draft = self.draft
        topics = []
        for name in self.names():
            partitions = [
                {
                    "partition_index": draft.odd(draft.random.randrange(3), -1, 77, chance=0.05),
                    "committed_offset": draft.odd(draft.random.randrange(100), -1, -2, 2**62, chance=0.1),
                    "committed_leader_epoch": draft.odd(-1, 0, 5, -2, chance=0.2),
                    "committed_metadata": draft.odd("m", "", None, "x" * 4096, "x" * 4097, "ü" * 3000, chance=0.2),
                }
                for _ in range(draft.pick((1, 1, 2)))
            ]
            topics.append({"name": name, "topic_id": draft.topic_id(name), "partitions": partitions})
        fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": draft.odd(-1, 0, 5, chance=0.06),
            "member_id": draft.odd("", "~nobody", chance=0.06),
            "group_instance_id": draft.odd(None, "~instance", chance=0.03),
            "retention_time_ms": draft.odd(-1, 0, 1000, chance=0.1),
            "topics": draft.odd(topics, [], chance=0.02),
        }
        draft.ask("OFFSET_COMMIT", fields)

    def fetch(self) -> None:
        draft = self.draft
        topics: list[dict[str, Any]] = [
            {
                "name": name,
                "topic_id": draft.topic_id(name),
                "partition_indexes": draft.pick(([0], [0, 1, 2], [2, 0], [77], [0, 0], [])),
            }
            for name in self.names()
        ]
        plain = [{"name": each["name"], "partition_indexes": each["partition_indexes"]} for each in topics]
        groups = [
            {
                "group_id": self.group,
                "member_id": draft.odd(None, "~nobody", chance=0.05),
                "member_epoch": draft.odd(-1, 0, 7, chance=0.05),
                "topics": draft.odd(topics, None, [], chance=0.25),
            }
            for _ in range(draft.pick((1, 1, 2)))
        ]
        fields = {
            "group_id": self.group,
            "topics": draft.odd(plain, None, [], chance=0.25),
            "groups": groups,
            "require_stable": draft.chance(0.4),
        }
        version = draft.version("OFFSET_FETCH")
        if version < 2:
            fields["topics"] = plain
        draft.ask("OFFSET_FETCH", fields, version)

    def delete(self) -> None:
        draft = self.draft
        topics = [
            {
                "name": name,
                "partitions": [{"partition_index": draft.odd(0, 1, 77, -1)} for _ in range(draft.pick((1, 2)))],
            }
            for name in self.names()
        ]
        draft.ask("OFFSET_DELETE", {"group_id": self.group, "topics": topics})

    def delete_group(self) -> None:
        names = [self.group for _ in range(self.draft.pick((1, 1, 2)))]
        self.draft.ask("DELETE_GROUPS", {"groups_names": names})

    def delete_topic(self) -> None:
        name = self.draft.pick(self.topics)
        self.draft.ask("DELETE_TOPICS", {"topic_names": [name], "topics": [{"name": name}], "timeout_ms": 10_000})
        if self.draft.chance(0.6):
            self.draft.create_topic(name)

    def find(self) -> None:
        draft = self.draft
        fields = {
            "key": self.group,
            "key_type": draft.odd(0, 1, 2, 3, -1),
            "coordinator_keys": [self.group, self.group],
        }
        version = draft.version("FIND_COORDINATOR")
        if version < 4:
            fields["key_type"] = draft.odd(0, 1)
        draft.ask("FIND_COORDINATOR", fields, version)

    def look(self) -> None:
        draft = self.draft
        api = draft.pick(("DESCRIBE_GROUPS", "LIST_GROUPS"))
        draft.ask(api, {"groups": [self.group]} if api == "DESCRIBE_GROUPS" else {})


def write(draft: Draft) -> None:
    offsets = _Offsets(draft)
    actions = (
        offsets.commit, offsets.fetch, offsets.delete, offsets.delete_group, offsets.delete_topic, offsets.find,
        offsets.look,
    )  # fmt: skip
    while len(draft) < _STEPS:
        draft.random.choices(actions, (8, 8, 3, 1, 0.4, 1, 1))[0]()
