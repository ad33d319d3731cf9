"""A group whose members speak the classic and the consumer protocol, one after the other and at once."""

from __future__ import annotations

from typing import Any

from compat_tests.differential.areas.consumer_groups import Member
from compat_tests.differential.draft import Asked, Draft

_STEPS = 32


class _Group:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.name = draft.group()
        self.topic = draft.create_topic(partitions=2)
        self.classic: Asked | None = None
        self.member = Member("~m0")
        #: `range` goes by the order of member ids, and of these the classic one's begins with the name of its client:
        #: both brokers assign the same. By default partitions are assigned in the order of a hash table.
        self.assignor = draft.pick(("range", "range", "range", None))

    def join_classic(self) -> None:
        draft = self.draft
        subscription: dict[str, Any] = {"version": draft.pick((1, 2, 3)), "topics": [self.topic]}
        if draft.chance(0.25):
            subscription["user_data"] = {"$bytes": "0102"}
        if draft.chance(0.3):
            subscription["owned_partitions"] = [{"topic": self.topic, "partitions": [0, 1]}]
        metadata = draft.odd({"$subscription": subscription}, {"$bytes": "0001"}, chance=0.04)
        names = draft.odd(["range"], ["custom"], ["range", "custom"], ["cooperative-sticky", "range"], chance=0.3)
        for _ in range(1 if self.classic else 2):
            fields = {
                "group_id": self.name,
                "session_timeout_ms": 600_000,
                "rebalance_timeout_ms": 600_000,
                "member_id": "" if self.classic is None else self.classic.ref("member_id", ""),
                "protocol_type": draft.odd("consumer", "connect", chance=0.05),
                "protocols": [{"name": name, "metadata": metadata} for name in names],
            }
            self.classic = draft.ask("JOIN_GROUP", fields, on="c", may_wait=True)

    def _classic_fields(self) -> dict[str, Any]:
        asked = self.classic
        return {
            "group_id": self.name,
            "generation_id": -1 if asked is None else asked.ref("generation_id", -1),
            "member_id": "~none" if asked is None else asked.ref("member_id", ""),
        }

    def sync(self) -> None:
        fields = self._classic_fields() | {"protocol_type": "consumer", "protocol_name": None}
        assigned = {"$assignment": {"assigned_partitions": [{"topic": self.topic, "partitions": [0, 1]}]}}
        fields["assignments"] = [{"member_id": fields["member_id"], "assignment": assigned}]
        self.draft.ask("SYNC_GROUP", fields, on="c", may_wait=True)

    def beat_classic(self) -> None:
        self.draft.ask("HEARTBEAT", self._classic_fields(), on="a")

    def leave_classic(self) -> None:
        member_id = self._classic_fields()["member_id"]
        fields = {"group_id": self.name, "member_id": member_id, "members": [{"member_id": member_id}]}
        self.draft.ask("LEAVE_GROUP", fields, on="a")
        self.classic = None

    def heartbeat(self, epoch: Any, **changed: Any) -> Asked:
        fields = {"group_id": self.name, "member_id": self.member.name, "member_epoch": epoch} | changed
        return self.draft.ask("CONSUMER_GROUP_HEARTBEAT", fields, 1)

    def join(self) -> None:
        joining = {
            "rebalance_timeout_ms": 600_000,
            "subscribed_topic_names": [self.topic],
            "server_assignor": self.assignor,
            "topic_partitions": [],
        }
        self.member.answers = [self.heartbeat(0, **joining)]

    def beat(self) -> None:
        self.member.answers.append(self.heartbeat(self.member.epoch, topic_partitions=self.member.owned()))

    def leave(self) -> None:
        self.heartbeat(-1)

    def commit(self) -> None:
        draft = self.draft
        classic = self._classic_fields()
        member = draft.pick(
            ((classic["member_id"], classic["generation_id"]), (self.member.name, self.member.epoch), ("", -1))
        )
        partition = {"partition_index": 0, "committed_offset": draft.random.randrange(50)}
        topics = [{"name": self.topic, "topic_id": draft.topic_id(self.topic), "partitions": [partition]}]
        fields = {
            "group_id": self.name,
            "member_id": member[0],
            "generation_id_or_member_epoch": member[1],
            "topics": topics,
        }
        draft.ask("OFFSET_COMMIT", fields)

    def look(self) -> None:
        draft = self.draft
        api = draft.pick(("DESCRIBE_GROUPS", "CONSUMER_GROUP_DESCRIBE", "LIST_GROUPS"))
        named = {"DESCRIBE_GROUPS": "groups", "CONSUMER_GROUP_DESCRIBE": "group_ids"}.get(api)
        draft.ask(api, {named: [self.name]} if named else {})


def write(draft: Draft) -> None:
    group = _Group(draft)
    draft.pick((group.join, group.join_classic))()
    actions = (
        group.join_classic, group.sync, group.beat_classic, group.leave_classic, group.join, group.beat, group.leave,
        group.commit, group.look,
    )  # fmt: skip
    while len(draft) < _STEPS:
        draft.random.choices(actions, (3, 4, 3, 1, 2, 5, 1, 2, 3))[0]()
