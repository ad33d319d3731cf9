"""Groups of the classic protocol: members that join, sync, beat and leave, static ones, odd subscriptions.

The model knows who has joined and who leads; it says nothing of a member's state that an answer would have to tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compat_tests.differential.draft import Asked, Draft

_STEPS = 40
_SESSION_MS = 600_000
#: Longer than a history takes: sessions end where one waits for it, and before it is described.
_SHORT_SESSION_MS = 1_500


@dataclass
class _Member:
    connection: str
    instance: str | None
    joined: Asked | None = None
    joined_version: int = 9
    #: The request that gave it its id, which a second JoinGroup repeats.
    named: Asked | None = None

    @property
    def id(self) -> Any:
        asked = self.joined or self.named
        return "" if asked is None else asked.ref("member_id", "")

    @property
    def generation(self) -> Any:
        return -1 if self.joined is None else self.joined.ref("generation_id", -1)


class _Group:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.name = draft.group()
        self.topics = [draft.create_topic(partitions=draft.pick((1, 2)))]
        if draft.chance(0.3):
            self.topics.append(draft.create_topic())
        self.members = [
            _Member(f"m{number}", f"~i{number}" if draft.chance(0.3) else None)
            for number in range(draft.pick((1, 1, 2, 3)))
        ]
        self.protocol_type = draft.odd("consumer", "connect", "", chance=0.15)
        self.protocols = draft.pick((["range"], ["range", "roundrobin"], ["cooperative-sticky"]))
        self.rebalance_ms = draft.odd(600_000, 300, chance=0.15)
        self.session_ms = draft.odd(_SESSION_MS, _SHORT_SESSION_MS, 99, 10, 3_600_000, chance=0.15)

    @property
    def member(self) -> _Member:
        return self.draft.pick(self.members)

    def subscription(self) -> Any:
        draft = self.draft
        topics = draft.odd(self.topics, [], ["~gone"], self.topics[:1] * 2, chance=0.15)
        version = draft.pick((0, 1, 2, 3))
        fields: dict[str, Any] = {"version": version, "topics": topics}
        if draft.chance(0.2):
            fields["user_data"] = {"$bytes": "00010203"}
        if version and draft.chance(0.4):
            fields["owned_partitions"] = [{"topic": self.topics[0], "partitions": [0]}]
        if draft.chance(0.12):
            fields["as"] = draft.pick((0, 1, 2, 3, 4, 99, -1))
        return draft.odd(
            {"$subscription": fields}, {"$bytes": ""}, {"$bytes": "0001"}, {"$bytes": "ffff00"}, chance=0.06
        )

    def join(self, member: _Member, **changed: Any) -> Asked:
        draft = self.draft
        fields: dict[str, Any] = {
            "group_id": draft.odd(self.name, "", "~other", chance=0.02),
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": draft.odd(member.id, "", "~nobody", chance=0.06),
            "group_instance_id": member.instance,
            "protocol_type": draft.odd(self.protocol_type, "other", "", chance=0.04),
            "reason": draft.odd(None, "", "why " * 100, chance=0.1),
            "protocols": [
                {"name": name, "metadata": self.subscription()}
                for name in draft.odd(self.protocols, ["other"], [], ["range", "other"], chance=0.05)
            ],
        } | changed
        version = draft.version("JOIN_GROUP", lowest=5 if member.instance else 0)
        asked = draft.ask("JOIN_GROUP", fields, version, on=member.connection, may_wait=True)
        member.named = asked
        return asked

    def join_all(self) -> None:
        """One after the other, new ones by two requests; upon each, those that are in the group join again."""
        for count, member in enumerate(self.members):
            if member.joined is None:
                self.join(member)
            member.joined = self.join(member)
            for earlier in self.members[:count]:
                earlier.joined = self.join(earlier)
        for member in self.members[1:]:
            self.draft.receive(member.connection)

    def sync(self, member: _Member) -> None:
        draft = self.draft
        assignment = {"$assignment": {"assigned_partitions": [{"topic": self.topics[0], "partitions": [0]}]}}
        assignments = [
            {"member_id": each.id, "assignment": draft.odd(assignment, {"$bytes": ""}, {"$bytes": "0000"})}
            for each in self.members
        ]
        fields = {
            "group_id": self.name,
            "generation_id": draft.odd(member.generation, -1, 99),
            "member_id": draft.odd(member.id, "", "~nobody", chance=0.05),
            "group_instance_id": draft.odd(member.instance, "~stranger", chance=0.03),
            "protocol_type": draft.odd(self.protocol_type, None, "other"),
            "protocol_name": draft.odd(self.protocols[0], None, "other"),
            "assignments": draft.odd(assignments, [], assignments[:1]),
        }
        version = draft.version("SYNC_GROUP", lowest=3 if member.instance else 0)
        draft.ask("SYNC_GROUP", fields, version, on=member.connection, may_wait=True)

    def sync_all(self) -> None:
        members = list(self.members)
        self.draft.random.shuffle(members)
        for member in members:
            self.sync(member)
        if self.draft.chance(0.5):
            for member in members:
                self.draft.receive(member.connection)

    def beat(self, member: _Member) -> None:
        draft = self.draft
        fields = {
            "group_id": self.name,
            "generation_id": draft.odd(member.generation, -1, 0, 99),
            "member_id": draft.odd(member.id, "", "~nobody", chance=0.05),
            "group_instance_id": draft.odd(member.instance, "~stranger", chance=0.03),
        }
        draft.ask("HEARTBEAT", fields, draft.version("HEARTBEAT", 3 if member.instance else 0), on="a")

    def leave(self, member: _Member) -> None:
        draft = self.draft
        identity = {"member_id": draft.odd(member.id, "", "~nobody"), "group_instance_id": member.instance}
        if member.instance and draft.chance(0.5):
            identity["member_id"] = ""
        if draft.chance(0.2):
            identity["reason"] = draft.pick(("", "why " * 100))
        fields = {
            "group_id": self.name,
            "member_id": member.id,
            "members": draft.odd([identity], [], [identity, identity], [{"member_id": "~nobody"}, identity]),
        }
        draft.ask("LEAVE_GROUP", fields, on="a")
        member.joined = None

    def commit(self, member: _Member) -> None:
        draft = self.draft
        partition = {"partition_index": 0, "committed_offset": draft.random.randrange(9), "committed_metadata": "m"}
        fields = {
            "group_id": self.name,
            "generation_id_or_member_epoch": draft.odd(member.generation, -1, 99),
            "member_id": draft.odd(member.id, "", "~nobody"),
            "group_instance_id": member.instance,
            "topics": [{"name": self.topics[0], "topic_id": draft.topic_id(self.topics[0]), "partitions": [partition]}],
        }
        draft.ask("OFFSET_COMMIT", fields, draft.version("OFFSET_COMMIT", 7 if member.instance else 2))

    def delete_offsets(self) -> None:
        partitions = [{"partition_index": index} for index in (0, 1)]
        topics = [{"name": name, "partitions": partitions} for name in self.topics]
        self.draft.ask("OFFSET_DELETE", {"group_id": self.name, "topics": topics})

    def look(self) -> None:
        draft = self.draft
        looks: tuple[tuple[str, dict[str, Any]], ...] = (
            ("DESCRIBE_GROUPS", {"groups": [self.name], "include_authorized_operations": draft.chance(0.3)}),
            ("LIST_GROUPS", {"states_filter": draft.pick(([], ["Stable"], ["empty"], ["nonsense"]))}),
            ("DELETE_GROUPS", {"groups_names": draft.odd([self.name], [self.name] * 2, ["~nobody", ""])}),
        )
        api, fields = draft.pick(looks)
        draft.ask(api, fields)

    def pass_time(self) -> None:
        if self.session_ms == _SHORT_SESSION_MS:
            self.draft.wait(2 * _SHORT_SESSION_MS, "sessions to end")


def write(draft: Draft) -> None:
    group = _Group(draft)
    group.join_all()
    group.sync_all()
    while len(draft) < _STEPS:
        action = draft.random.choices(
            ("join", "sync", "rejoin", "beat", "leave", "commit", "delete", "look", "close", "wait"),
            (3, 3, 2, 5, 2, 4, 3, 3, 0.5, 0.3),
        )[0]
        member = group.member
        if action == "join":
            asked = group.join(member)
            if draft.chance(0.7):
                member.joined = asked
        elif action == "sync":
            group.sync(member)
        elif action == "rejoin":
            group.join_all()
            group.sync_all()
        elif action == "beat":
            group.beat(member)
        elif action == "leave":
            group.leave(member)
        elif action == "commit":
            group.commit(member)
        elif action == "delete":
            group.delete_offsets()
        elif action == "look":
            group.look()
        elif action == "close":
            draft.close(member.connection)
        else:
            group.pass_time()
    group.pass_time()
