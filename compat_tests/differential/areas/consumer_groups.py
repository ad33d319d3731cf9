"""Groups of the consumer protocol (KIP-848): members by heartbeat, with epochs old, new and wrong, and what they own.

A member repeats what its last answers gave it; several of them take partitions from each other.
"""

from __future__ import annotations

from typing import Any

from compat_tests.differential.draft import Asked, Draft

_STEPS = 40
_UNKNOWN_TOPIC = {"$uuid": "00000000-0000-0000-0000-00000000dead"}


class Member:
    """A member of any group of heartbeats, and the answers that it goes by."""

    def __init__(self, name: str, instance: str | None = None) -> None:
        self.name = name
        self.instance = instance
        self.answers: list[Asked] = []
        self.has_joined = False

    @property
    def epoch(self) -> Any:
        return self.answers[-1].ref("member_epoch", 0) if self.answers else 0

    def owned(self, path: str = "assignment.topic_partitions") -> Any:
        """The last assignment that it was given: an answer without one leaves it as it was."""
        owned: Any = []
        for answer in self.answers[-6:]:
            owned = answer.ref(path, owned)
        return owned


class _Group:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.name = draft.group()
        self.topics = [draft.create_topic(partitions=draft.pick((1, 2, 3))) for _ in range(draft.pick((1, 2)))]
        self.members = [
            Member(f"~m{number}", f"~i{number}" if draft.chance(0.25) else None)
            for number in range(draft.pick((1, 2, 2, 3)))
        ]

    @property
    def member(self) -> Member:
        return self.draft.pick(self.members)

    @property
    def group_id(self) -> str:
        return self.draft.odd(self.name, "", "~other", chance=0.02)

    def heartbeat(self, member: Member, *, epoch: Any, **changed: Any) -> Asked:
        draft = self.draft
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": draft.odd(member.name, "", "~nobody", chance=0.03),
            "member_epoch": epoch,
            "instance_id": draft.odd(member.instance, "~stranger", "", chance=0.02),
        } | changed
        return draft.ask("CONSUMER_GROUP_HEARTBEAT", fields, draft.odd(1, 0, chance=0.1))

    def join(self, member: Member) -> None:
        draft = self.draft
        asked = self.heartbeat(
            member,
            epoch=0,
            rebalance_timeout_ms=draft.odd(600_000, 0, -1, chance=0.05),
            subscribed_topic_names=draft.odd(self.some_topics(), [], None, ["~unknown"], [""], chance=0.1),
            server_assignor=draft.odd(None, "range", "uniform", "none", "", chance=0.3),
            rack_id=draft.odd(None, "", "rack", chance=0.05),
            topic_partitions=draft.odd([], None, [{"topic_id": _UNKNOWN_TOPIC, "partitions": [0]}], chance=0.06),
        )
        member.answers = [asked]
        member.has_joined = True

    def some_topics(self) -> list[str]:
        return self.draft.random.sample(self.topics, self.draft.random.randint(1, len(self.topics)))

    def beat(self, member: Member) -> None:
        draft = self.draft
        epoch = member.answers[-1].ref("member_epoch", 1, draft.pick((-1, 1))) if member.answers else 5
        changed: dict[str, Any] = {"topic_partitions": member.owned()}
        if draft.chance(0.3):
            changed["topic_partitions"] = None
        if draft.chance(0.12):
            changed["subscribed_topic_names"] = draft.odd(self.some_topics(), [], ["~unknown"])
        if draft.chance(0.04):
            changed["subscribed_topic_regex"] = draft.pick(("~t.*", "", "(", "~none.*"))
        if draft.chance(0.05):
            changed["server_assignor"] = draft.pick(("range", "uniform", "none"))
        asked = self.heartbeat(member, epoch=draft.odd(member.epoch, epoch, chance=0.08), **changed)
        member.answers.append(asked)

    def leave(self, member: Member) -> None:
        is_static = member.instance is not None
        epoch = self.draft.odd(-2 if is_static else -1, -1, -2, -3, chance=0.2)
        self.heartbeat(member, epoch=epoch)
        member.has_joined = False

    def commit(self, member: Member) -> None:
        draft = self.draft
        topic = draft.pick(self.topics)
        partition = {"partition_index": draft.pick((0, 1)), "committed_offset": draft.random.randrange(50)}
        fields = {
            "group_id": self.name,
            "generation_id_or_member_epoch": draft.odd(member.epoch, -1, 0, 1, 99, chance=0.2),
            "member_id": draft.odd(member.name, "", "~nobody", chance=0.08),
            "group_instance_id": draft.odd(member.instance, None, chance=0.05),
            "topics": [{"name": topic, "topic_id": draft.topic_id(topic), "partitions": [partition]}],
        }
        draft.ask("OFFSET_COMMIT", fields)

    def fetch(self, member: Member) -> None:
        draft = self.draft
        topic = draft.pick(self.topics)
        group = {
            "group_id": self.name,
            "member_id": draft.odd(member.name, None, "", "~nobody", chance=0.15),
            "member_epoch": draft.odd(member.epoch, -1, 0, 99, chance=0.15),
            "topics": [{"name": topic, "topic_id": draft.topic_id(topic), "partition_indexes": [0, 1]}],
        }
        draft.ask("OFFSET_FETCH", {"groups": [group]}, draft.random.randint(8, 10))

    def delete_offsets(self) -> None:
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in [*self.topics, "~unknown"]]
        self.draft.ask("OFFSET_DELETE", {"group_id": self.name, "topics": topics})

    def describe(self) -> None:
        draft = self.draft
        ids = draft.odd([self.name], [self.name, "~nobody"], [""], chance=0.1)
        draft.ask("CONSUMER_GROUP_DESCRIBE", {"group_ids": ids, "include_authorized_operations": draft.chance(0.2)})

    def list(self) -> None:
        draft = self.draft
        fields = {
            "states_filter": draft.pick(([], ["Stable"], ["reconciling"], ["Assigning", "Empty"], ["Dead"])),
            "types_filter": draft.pick(([], ["consumer"], ["classic"], ["Consumer", "x"])),
        }
        draft.ask("LIST_GROUPS", fields)

    def of_the_other_kind(self, member: Member) -> None:
        """Requests that are for classic or share groups."""
        draft = self.draft
        api, fields = draft.pick(
            (
                ("HEARTBEAT", {"generation_id": member.epoch, "member_id": member.name}),
                ("SYNC_GROUP", {"generation_id": member.epoch, "member_id": member.name}),
                ("LEAVE_GROUP", {"member_id": member.name, "members": [{"member_id": member.name}]}),
                (
                    "SHARE_GROUP_HEARTBEAT",
                    {"member_id": "~m", "member_epoch": 0, "subscribed_topic_names": self.topics},
                ),
            )
        )
        draft.ask(api, {"group_id": self.name, **fields})

    def delete_group(self) -> None:
        self.draft.ask("DELETE_GROUPS", {"groups_names": [self.name]})

    def change_topics(self) -> None:
        draft = self.draft
        name = draft.pick(self.topics)
        if draft.chance(0.5):
            topics = [{"name": name, "count": draft.pick((3, 4)), "assignments": None}]
            draft.ask("CREATE_PARTITIONS", {"topics": topics, "timeout_ms": 10_000}, 3)
        else:
            draft.ask("DELETE_TOPICS", {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": 10_000}, 6)


def write(draft: Draft) -> None:
    group = _Group(draft)
    group.join(group.members[0])
    while len(draft) < _STEPS:
        member = group.member
        actions = (
            group.beat, group.join, group.leave, group.commit, group.fetch, group.of_the_other_kind,
        )  # fmt: skip
        if not member.has_joined and draft.chance(0.7):
            group.join(member)
        elif draft.chance(0.78):
            draft.random.choices(actions, (12, 0.7, 1.3, 3, 2, 0.6))[0](member)
        else:
            others = (group.delete_offsets, group.describe, group.list, group.delete_group, group.change_topics)
            draft.random.choices(others, (2, 5, 2, 1, 0.7))[0]()
