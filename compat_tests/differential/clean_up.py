"""The requests that remove what a history left behind: what is listed for all, and topics, of which thousands make both
brokers slow.
"""

from __future__ import annotations

from typing import Any, Final

from compat_tests.differential.end_state import FIRST_ID
from compat_tests.differential.history import History, Step

_FIRST_ID: Final = 100 * FIRST_ID
_MOST_MEMBERS: Final = 3
_LEAVES: Final = -1
_ANY: Final = 1
_RULES_OF: Final = ("User:~alice", "User:~bob", "Group:~g", "~nobody")
#: How members of each kind join, how they are described, and in which version.
_BY_HEARTBEAT: Final = {
    "CONSUMER_GROUP_HEARTBEAT": "CONSUMER_GROUP_DESCRIBE",
    "SHARE_GROUP_HEARTBEAT": "SHARE_GROUP_DESCRIBE",
    "STREAMS_GROUP_HEARTBEAT": "STREAMS_GROUP_DESCRIBE",
}


def clean_up(history: History) -> tuple[Step, ...]:
    steps: list[Step] = []

    def ask(api: str, version: int, fields: dict[str, Any]) -> int:
        steps.append(Step(id=_FIRST_ID + len(steps), connection="end", api=api, version=version, fields=fields))
        return steps[-1].id

    joined = {step.api for step in history.steps}
    for name in history.groups:
        if "JOIN_GROUP" in joined:
            described = ask("DESCRIBE_GROUPS", 6, {"groups": [name]})
            members = [{"member_id": _member(described, number)} for number in range(_MOST_MEMBERS)]
            ask("LEAVE_GROUP", 5, {"group_id": name, "members": members})
        for heartbeat, describe in _BY_HEARTBEAT.items():
            if heartbeat in joined:
                described = ask(describe, 1, {"group_ids": [name]})
                for number in range(_MOST_MEMBERS):
                    leaving = {"member_id": _member(described, number), "member_epoch": _LEAVES}
                    ask(heartbeat, 1, {"group_id": name, **leaving})
    if history.groups:
        ask("DELETE_GROUPS", 2, {"groups_names": list(history.groups)})
    if "CREATE_ACLS" in joined:
        everything = {
            "resource_type_filter": _ANY, "resource_name_filter": None, "pattern_type_filter": _ANY,
            "principal_filter": None, "host_filter": None, "operation": _ANY, "permission_type": _ANY,
        }  # fmt: skip
        filters = [everything | {"principal_filter": principal} for principal in _RULES_OF]
        ask("DELETE_ACLS", 3, {"filters": [*filters, everything | {"resource_name_filter": "~res"}]})
    if history.topics:
        ask("DELETE_TOPICS", 6, {"topics": [{"name": name} for name in history.topics], "timeout_ms": 10_000})
    return tuple(steps)


def _member(described: int, number: int) -> dict[str, Any]:
    return {"$ref": [described, f"groups.0.members.{number}.member_id"], "else": "~none"}
