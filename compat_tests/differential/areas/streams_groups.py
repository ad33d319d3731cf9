"""Streams groups: topologies that are new, the same, unfit, older; tasks that are given and given back; static members
that go away and come back.
"""

from __future__ import annotations

from typing import Any

from compat_tests.differential.areas.consumer_groups import Member
from compat_tests.differential.draft import Asked, Draft

_STEPS = 30


class _Group:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.name = draft.group()
        self.topics = [draft.create_topic(partitions=draft.pick((1, 2))) for _ in range(draft.pick((1, 2)))]
        # Two members may have one instance id: the second comes in the place of the first.
        self.members = [
            Member(f"~m{number}", draft.pick((None, None, "~i", f"~i{number}")))
            for number in range(draft.pick((1, 1, 2, 2)))
        ]

    def topology(self) -> dict[str, Any]:
        draft = self.draft
        sources = draft.odd(self.topics, ["~unknown"], [], self.topics[:1], chance=0.15)
        subtopology: dict[str, Any] = {"subtopology_id": draft.odd("0", "1", "", chance=0.05), "source_topics": sources}
        if draft.chance(0.2):
            subtopology["state_changelog_topics"] = [self.changelog()]
        if draft.chance(0.15):
            subtopology["repartition_sink_topics"] = [f"{self.name}-by-key-repartition"]
        if draft.chance(0.15):
            subtopology["repartition_source_topics"] = [self.repartition()]
        if len(sources) == 2 and draft.chance(0.3):
            group: dict[str, Any] = {"source_topics": draft.odd([0, 1], [0, 5], [-1])}
            if draft.chance(0.2):
                group["repartition_source_topics"] = draft.pick(([0], [5]))
            if draft.chance(0.1):
                group["source_topic_regex"] = [0]
            subtopology["copartition_groups"] = [group]
        if draft.chance(0.05):
            subtopology["source_topic_regex"] = [draft.pick(("~t.*", "(", "*"))]
        count = draft.odd(1, 0, 2, chance=0.05)
        return {"epoch": draft.odd(0, 1, 2, -1, chance=0.12), "subtopologies": [subtopology] * count}

    def changelog(self) -> dict[str, Any]:
        draft = self.draft
        return {
            "name": f"{self.name}-store-changelog",
            "partitions": draft.odd(0, 1, -1, chance=0.1),
            "replication_factor": draft.odd(0, 1, chance=0.2),
            "topic_configs": self.topic_configs(),
        }

    def repartition(self) -> dict[str, Any]:
        draft = self.draft
        return {
            "name": f"{self.name}-by-key-repartition",
            "partitions": draft.odd(2, 0, 1, -1, chance=0.3),
            "replication_factor": draft.odd(0, 1, chance=0.2),
            "topic_configs": self.topic_configs(),
        }

    def topic_configs(self) -> list[dict[str, str]]:
        configs = {"cleanup.policy": "compact", "no.such.config": "1", "retention.ms": "x"}
        name = self.draft.odd("cleanup.policy", "no.such.config", "retention.ms", chance=0.1)
        return self.draft.odd([], [{"key": name, "value": configs[name]}], chance=0.3)

    def heartbeat(self, member: Member, epoch: Any, **changed: Any) -> Asked:
        draft = self.draft
        fields = {
            "group_id": draft.odd(self.name, "", chance=0.02),
            "member_id": draft.odd(member.name, "", "~nobody", chance=0.02),
            "member_epoch": epoch,
            "instance_id": draft.odd(member.instance, None, "", "~i", chance=0.03),
        }
        if draft.chance(0.1):
            fields["task_offsets"] = draft.pick(([], self.offsets(1), self.offsets(2)))
        if draft.chance(0.05):
            fields["task_end_offsets"] = self.offsets(1)
        return draft.ask("STREAMS_GROUP_HEARTBEAT", fields | changed)

    def offsets(self, count: int) -> list[dict[str, Any]]:
        indexes = [self.draft.random.randrange(3) for _ in range(count)]
        return [
            {"subtopology_id": "0", "partition": index, "offset": self.draft.random.randrange(9)} for index in indexes
        ]

    def join(self, member: Member) -> None:
        draft = self.draft
        none: list[Any] = [
            draft.odd([], None, [{"subtopology_id": "0", "partitions": [0]}], chance=0.05) for _ in range(3)
        ]
        changed = {
            "topology": draft.odd(self.topology(), None, chance=0.04),
            "rebalance_timeout_ms": draft.odd(600_000, -1, 0, chance=0.05),
            "active_tasks": none[0],
            "standby_tasks": none[1],
            "warmup_tasks": none[2],
            "process_id": draft.odd("p", None, "", chance=0.05),
            "rack_id": draft.odd(None, "rack", "", chance=0.1),
            "user_endpoint": draft.odd(None, {"host": "localhost", "port": 80}, {"host": "", "port": 0}, chance=0.15),
            "client_tags": draft.odd([], [{"key": "zone", "value": "a"}], None, chance=0.1),
        }
        member.answers = [self.heartbeat(member, 0, **changed)]
        member.has_joined = True

    def beat(self, member: Member) -> None:
        draft = self.draft
        changed: dict[str, Any] = {}
        if draft.chance(0.7):
            changed = {kind: member.owned(kind) for kind in ("active_tasks", "standby_tasks", "warmup_tasks")}
        if draft.chance(0.05):
            changed["topology"] = self.topology()
        if draft.chance(0.1):
            changed["endpoint_information_epoch"] = draft.pick((0, 1, 5, -1))
        if draft.chance(0.05):
            changed["shutdown_application"] = True
        older = member.answers[-1].ref("member_epoch", 1, -1) if member.answers else 3
        member.answers.append(self.heartbeat(member, draft.odd(member.epoch, older, 99, chance=0.08), **changed))

    def leave(self, member: Member) -> None:
        away = -1 if member.instance is None else -2
        self.heartbeat(member, self.draft.odd(away, -1, -2, -3, chance=0.3))
        member.has_joined = False

    def commit(self, member: Member) -> None:
        draft = self.draft
        topic = draft.pick(self.topics)
        partition = {"partition_index": 0, "committed_offset": draft.random.randrange(50)}
        fields = {
            "group_id": self.name,
            "generation_id_or_member_epoch": draft.odd(member.epoch, -1, 0, 99, chance=0.2),
            "member_id": draft.odd(member.name, "", "~nobody", chance=0.08),
            "topics": [{"name": topic, "topic_id": draft.topic_id(topic), "partitions": [partition]}],
        }
        draft.ask("OFFSET_COMMIT", fields)

    def describe_topology(self) -> None:
        draft = self.draft
        source = {
            "name": "source",
            "node_type": draft.odd(1, 0, 9),
            "source_topics": self.topics[:1],
            "successors": draft.odd(["store"], ["nowhere"], []),
        }
        processor = {"name": "store", "node_type": 2, "stores": ["s"], "successors": ["sink"]}
        sink = {"name": "sink", "node_type": 3, "sink_topic": draft.odd("~out", None)}
        described = {
            "subtopologies": [{"subtopology_id": "0", "nodes": [source, processor, sink]}],
            "global_stores": draft.odd([], [{"source": source, "processor": processor}], chance=0.2),
        }
        fields = {
            "group_id": draft.odd(self.name, "~other"),
            "member_id": draft.odd("~m0", "~nobody"),
            "topology_epoch": draft.odd(0, 1, -1),
            "topology_description": described,
        }
        draft.ask("STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE", fields)

    def look(self) -> None:
        draft = self.draft
        if draft.chance(0.15):
            draft.ask("STREAMS_GROUP_DESCRIBE", {"group_ids": [self.name], "include_topology_description": True}, 1)
            return
        if draft.chance(0.1):
            self.describe_topology()
            return
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            (
                "STREAMS_GROUP_DESCRIBE",
                {"group_ids": [self.name], "include_authorized_operations": draft.chance(0.2)},
            ),
            (
                "LIST_GROUPS",
                {"types_filter": draft.pick(([], ["streams"])), "states_filter": draft.pick(([], ["NotReady"]))},
            ),
            ("DELETE_GROUPS", {"groups_names": [self.name]}),
            ("OFFSET_DELETE", {"group_id": self.name, "topics": [{"name": self.topics[0], "partitions": [{}]}]}),
        )
        draft.ask(*draft.random.choices(asked, (4, 1, 0.5, 1))[0])


def write(draft: Draft) -> None:
    group = _Group(draft)
    group.join(group.members[0])
    while len(draft) < _STEPS:
        member = draft.pick(group.members)
        if not member.has_joined and draft.chance(0.6):
            group.join(member)
        elif draft.chance(0.75):
            actions = (group.beat, group.join, group.leave, group.commit)
            draft.random.choices(actions, (8, 0.8, 0.8, 1.5))[0](member)
        else:
            group.look()
