"""Share groups: members by heartbeat, records fetched, acknowledged and released, offsets moved and deleted."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.areas.consumer_groups import Member
from compat_tests.differential.draft import Asked, Draft

_STEPS = 40
#: Share groups know members by ids of this form alone.
_MEMBERS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")


class _Group:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.name = draft.group()
        self.topics = [draft.create_topic(partitions=1, **{"retention.ms": "-1"}) for _ in range(draft.pick((1, 1, 2)))]
        self.members = [Member(name) for name in _MEMBERS[: draft.pick((1, 1, 2))]]
        #: The epoch of each member's share session.
        self.sessions = dict.fromkeys(_MEMBERS, 0)
        resource = {
            "resource_type": 32,
            "resource_name": self.name,
            "configs": [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}],
        }
        draft.ask("INCREMENTAL_ALTER_CONFIGS", {"resources": [resource]}, 1)

    def produce(self) -> None:
        draft = self.draft
        count = draft.pick((1, 2, 5))
        data = [{"index": 0, "records": {"$batches": [{"values": ["v"] * count}]}}]
        topic_data = [{"name": draft.pick(self.topics), "partition_data": data}]
        draft.ask("PRODUCE", {"acks": -1, "timeout_ms": 10_000, "topic_data": topic_data}, 12)

    def heartbeat(self, member: Member, epoch: Any, **changed: Any) -> Asked:
        draft = self.draft
        fields = {
            "group_id": draft.odd(self.name, "", chance=0.02),
            "member_id": draft.odd(member.name, "", "~nobody", chance=0.02),
            "member_epoch": epoch,
        }
        return draft.ask("SHARE_GROUP_HEARTBEAT", fields | changed)

    def join(self, member: Member) -> None:
        draft = self.draft
        topics = draft.odd(self.topics, self.topics[:1], [], None, ["~unknown"], chance=0.12)
        rack = draft.odd(None, "rack", "", chance=0.1)
        member.answers = [self.heartbeat(member, 0, subscribed_topic_names=topics, rack_id=rack)]
        member.has_joined = True

    def beat(self, member: Member) -> None:
        draft = self.draft
        changed: dict[str, Any] = {}
        if draft.chance(0.15):
            changed["subscribed_topic_names"] = draft.odd(self.topics[:1], self.topics, [])
        member.answers.append(self.heartbeat(member, draft.odd(member.epoch, 0, 1, 99, -2, chance=0.08), **changed))

    def leave(self, member: Member) -> None:
        self.heartbeat(member, -1)
        member.has_joined = False

    def acknowledged(self) -> list[dict[str, Any]]:
        draft = self.draft
        first = draft.random.randrange(6)
        last = draft.odd(first + draft.random.randrange(3), first - 1, chance=0.05)
        kinds = draft.odd([draft.pick((1, 2, 3))], [0], [4], [5], [], [1, 2], chance=0.15)
        return [{"first_offset": first, "last_offset": last, "acknowledge_types": kinds}]

    def fetch(self, member: Member, *, epoch: Any = None) -> None:
        draft = self.draft
        if epoch is None:
            epoch = draft.odd(self.sessions[member.name], 0, 7, -1, chance=0.06)
        topics = [
            {
                "topic_id": draft.topic_id(name),
                "partitions": [
                    {
                        "partition_index": draft.odd(0, 9, chance=0.03),
                        "partition_max_bytes": 1 << 20,
                        "acknowledgement_batches": self.acknowledged() if epoch and draft.chance(0.3) else [],
                    }
                ],
            }
            for name in self.topics
        ]
        fields = {
            "group_id": draft.odd(self.name, "~other", chance=0.02),
            "member_id": draft.odd(member.name, "", "~nobody", chance=0.03),
            "share_session_epoch": epoch,
            "max_wait_ms": 400,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": draft.odd(500, 1, 2, chance=0.3),
            "batch_size": draft.odd(500, 1, chance=0.2),
            "share_acquire_mode": draft.odd(0, 1, 2, -1, chance=0.25),
            "is_renew_ack": draft.chance(0.06),
            "forgotten_topics_data": draft.odd([], self.forgotten(), chance=0.06) if epoch else [],
            "topics": draft.odd(topics, [], chance=0.2) if epoch else topics,
        }
        draft.ask("SHARE_FETCH", fields)
        self.sessions[member.name] = 0 if epoch == -1 else self.sessions[member.name] + 1

    def forgotten(self) -> list[dict[str, Any]]:
        draft = self.draft
        return [
            {"topic_id": draft.topic_id(draft.pick(self.topics)), "partitions": draft.odd([0], [9], [], chance=0.2)}
        ]

    def renew(self, member: Member) -> None:
        """The lock of one record anew, as a consumer whose work takes long does it."""
        first = self.draft.random.randrange(4)
        renewed = [{"first_offset": first, "last_offset": first, "acknowledge_types": [4]}]
        topics = [
            {
                "topic_id": self.draft.topic_id(self.topics[0]),
                "partitions": [{"partition_index": 0, "acknowledgement_batches": renewed}],
            }
        ]
        fields = {
            "group_id": self.name,
            "member_id": member.name,
            "share_session_epoch": self.sessions[member.name],
            "is_renew_ack": self.draft.odd(True, False),
            "topics": topics,
        }
        self.draft.ask("SHARE_ACKNOWLEDGE", fields, 2)
        self.sessions[member.name] += 1

    def acknowledge(self, member: Member) -> None:
        draft = self.draft
        partitions = [{"partition_index": draft.odd(0, 9, chance=0.03), "acknowledgement_batches": self.acknowledged()}]
        fields = {
            "group_id": self.name,
            "member_id": draft.odd(member.name, "~nobody", chance=0.03),
            "share_session_epoch": draft.odd(self.sessions[member.name], 0, 9, -1, chance=0.08),
            "is_renew_ack": draft.chance(0.06),
            "topics": [{"topic_id": draft.topic_id(draft.pick(self.topics)), "partitions": partitions}],
        }
        draft.ask("SHARE_ACKNOWLEDGE", fields)
        self.sessions[member.name] += 1

    def look(self) -> None:
        draft = self.draft
        listed = [{"topic_name": name, "partitions": [0]} for name in [*self.topics, "~unknown"]]
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            (
                "SHARE_GROUP_DESCRIBE",
                {"group_ids": [self.name], "include_authorized_operations": draft.chance(0.2)},
            ),
            ("DESCRIBE_SHARE_GROUP_OFFSETS", {"groups": [{"group_id": self.name, "topics": draft.odd(listed, None)}]}),
            ("LIST_GROUPS", {"types_filter": draft.pick(([], ["share"], ["classic"]))}),
            ("DELETE_GROUPS", {"groups_names": [self.name]}),
        )
        draft.ask(*draft.random.choices(asked, (3, 3, 1, 0.5))[0])

    def move(self) -> None:
        draft = self.draft
        name = draft.odd(draft.pick(self.topics), "~unknown", chance=0.05)
        if draft.chance(0.6):
            partitions = [{"partition_index": draft.odd(0, 9), "start_offset": draft.odd(2, 0, -1, 99)}]
            topics = [{"topic_name": name, "partitions": partitions}]
            draft.ask("ALTER_SHARE_GROUP_OFFSETS", {"group_id": self.name, "topics": topics})
        else:
            topics = [{"topic_name": name}]
            draft.ask("DELETE_SHARE_GROUP_OFFSETS", {"group_id": self.name, "topics": topics})


def write(draft: Draft) -> None:
    group = _Group(draft)
    group.produce()
    for member in group.members:
        group.join(member)
        group.beat(member)
    while len(draft) < _STEPS:
        member = draft.pick(group.members)
        if not member.has_joined and draft.chance(0.6):
            group.join(member)
        elif draft.chance(0.7):
            actions = (group.fetch, group.acknowledge, group.renew, group.beat, group.leave, group.join)
            draft.random.choices(actions, (5, 3, 0.6, 4, 0.6, 0.3))[0](member)
        else:
            draft.random.choices((group.produce, group.look, group.move), (2, 3, 0.8))[0]()
