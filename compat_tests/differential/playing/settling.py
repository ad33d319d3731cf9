"""After a change of the cluster's metadata: wait until the broker that is asked next has it.

Apache Kafka's controller answers when the change is written; its broker learns of it a few milliseconds later.
"""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any, Final

from compat_tests.differential.history import Step
from compat_tests.differential.playing.connection import Connection
from compat_tests.differential.playing.routes import Direct, Routes
from compat_tests.differential.values import Values
from compat_tests.wire.wire_routes import Address
from ottla.kproto.errors import ErrorCode

_LONGEST_S: Final = 5.0
#: Some are never made: what the topology says of them may be wrong.
_INTERNAL_TOPICS_S: Final = 1.0
#: Changes that are only waited for: nothing can be asked about them that would not be a step of the history.
_CHANGES: Final = frozenset(
    {
        "INCREMENTAL_ALTER_CONFIGS", "ALTER_CONFIGS", "ALTER_CLIENT_QUOTAS", "ALTER_USER_SCRAM_CREDENTIALS",
        "CREATE_ACLS", "DELETE_ACLS", "UPDATE_FEATURES", "ALTER_PARTITION_REASSIGNMENTS", "ELECT_LEADERS",
    }
)  # fmt: skip
#: Delivery state of share groups is set up behind the answer, and so is what follows from a new topology; records that
#: nobody wants acknowledged are written behind the next one, and what a share session held when it ended is given back.
_GO_ON_BEHIND: Final = frozenset(
    {"SHARE_GROUP_HEARTBEAT", "STREAMS_GROUP_HEARTBEAT", "PRODUCE", "SHARE_FETCH", "SHARE_ACKNOWLEDGE"}
)
_ENDS_THE_SESSION: Final = -1
#: States of a transaction whose markers are being written, and of one that is not over.
_ENDING: Final = ("PrepareCommit", "PrepareAbort")
_UNENDED: Final = ("Ongoing", *_ENDING)
_TOPICS: Final = frozenset({"CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS"})
#: How a streams group's member is told of internal topics; Apache Kafka makes them behind that answer.
_MISSING_INTERNAL_TOPICS: Final = 3
_NAMES_MISSING: Final = re.compile(r"Internal topics are missing: ([^;]*)")


def _are_all_there(count: int, codes: list[int]) -> bool:
    return codes == [0] * count


def internal_topics_made(answer: Any) -> list[str]:
    """Those that the heartbeat with this answer found missing, and that can be made."""
    if not isinstance(answer, dict):
        return []
    details = [
        each["status_detail"]
        for each in answer.get("status") or ()
        if each["status_code"] == _MISSING_INTERNAL_TOPICS and ";" not in each["status_detail"]
    ]
    return [name for detail in details for names in _NAMES_MISSING.findall(detail) for name in names.split(", ")]


def _begins_something(step: Step, answer: Any) -> bool:
    if step.api == "PRODUCE":
        return bool(step.fields.get("acks", 0) == 0)
    if step.api in ("SHARE_FETCH", "SHARE_ACKNOWLEDGE"):
        return bool(step.fields.get("share_session_epoch") == _ENDS_THE_SESSION)
    names = step.fields.get("subscribed_topic_names") or step.fields.get("topology")
    return bool(names) and isinstance(answer, dict) and not answer["error_code"]


class Settling:
    """Asks over connections of its own."""

    def __init__(
        self, routes: Direct | Routes, values: Values, settle_s: float, behind_s: float, leaders_s: float
    ) -> None:
        self._routes = routes
        self._connections: dict[Address, Connection] = {}
        self._values = values
        self._settle_s = settle_s
        self._behind_s = behind_s
        self._leaders_s = leaders_s

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def leave(self, address: Address) -> None:
        if address in self._connections:
            self._connections.pop(address).close()

    def after(self, step: Step, answer: Any) -> None:
        if step.api == "END_TXN" and isinstance(answer, dict) and answer["error_code"] == 0:
            # It is answered before the markers are written.
            self.await_end(self._values.resolved(step.fields.get("transactional_id", "")), _LONGEST_S, _ENDING)
        if step.api in _CHANGES:
            time.sleep(self._settle_s)
        if step.api == "ELECT_LEADERS":
            time.sleep(self._leaders_s)
        if step.api in _GO_ON_BEHIND and _begins_something(step, answer):
            time.sleep(self._behind_s)
        if step.api == "STREAMS_GROUP_HEARTBEAT" and (made := internal_topics_made(answer)):
            self._await(made, lambda codes: bool(codes) and set(codes) == {0}, longest_s=_INTERNAL_TOPICS_S)
            # The group's coordinator hears of them last.
            time.sleep(self._settle_s)
        if step.api in _TOPICS and isinstance(answer, dict) and not step.fields.get("validate_only"):
            self._await_topics(step, answer)
        if step.api == "METADATA" and isinstance(answer, dict) and step.fields.get("allow_auto_topic_creation", True):
            missing = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
            made = [topic["name"] for topic in answer["topics"] if topic["error_code"] in missing and topic["name"]]
            self._await(made, lambda codes: bool(codes) and set(codes) == {0}, longest_s=0.5)

    def await_end(self, transactional_id: str, longest_s: float, states: tuple[str, ...] = _UNENDED) -> None:
        """Until the transaction of that id is in none of these states; one that nobody has heard of is in none."""
        deadline = time.monotonic() + longest_s
        while time.monotonic() < deadline:
            described = self._call("DESCRIBE_TRANSACTIONS", 0, {"transactional_ids": [transactional_id]})
            if described["transaction_states"][0]["transaction_state"] not in states:
                return
            time.sleep(0.002)

    def _await_topics(self, step: Step, answer: dict[str, Any]) -> None:
        results = answer.get("topics") or answer.get("responses") or answer.get("results") or []
        names = [each["name"] for each in results if each["error_code"] == 0 and each["name"]]
        if step.api == "DELETE_TOPICS":
            self._await(names, lambda codes: set(codes) <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        elif step.api == "CREATE_TOPICS":
            self._await(names, lambda codes: bool(codes) and set(codes) == {0})
        else:
            asked = step.fields.get("topics") or []
            counts = {self._values.resolved(each.get("name", "")): each.get("count", 0) for each in asked}
            for name in names:
                self._await([name], partial(_are_all_there, counts.get(name, 0)))
        if names and self._values.new_epoch is None and step.api == "CREATE_TOPICS":
            asked = {"topics": [{"name": names[0]}], "allow_auto_topic_creation": False}
            partitions = self._call("METADATA", 7, asked)["topics"][0]["partitions"]
            self._values.new_epoch = partitions[0]["leader_epoch"] if partitions else None
        if names:
            time.sleep(self._settle_s)

    def _await(self, names: list[str], is_there: Any, longest_s: float = _LONGEST_S) -> None:
        deadline = time.monotonic() + longest_s
        while names and not all(is_there(self._partition_codes(name)) for name in names):
            if time.monotonic() > deadline:
                return
            time.sleep(0.002)

    def _partition_codes(self, name: str) -> list[int]:
        """What ListOffsets says of each partition that Metadata knows: it needs the broker's log."""
        metadata = self._call("METADATA", 4, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
        topic = metadata["topics"][0]
        if topic["error_code"]:
            return [topic["error_code"]]
        partitions = [
            {"partition_index": each["partition_index"], "timestamp": -1}
            for each in sorted(topic["partitions"], key=lambda each: each["partition_index"])
        ]
        listed = self._call("LIST_OFFSETS", 4, {"replica_id": -1, "topics": [{"name": name, "partitions": partitions}]})
        return [each["error_code"] for topic in listed["topics"] for each in topic["partitions"]]

    def _call(self, api: str, version: int, fields: dict[str, Any]) -> Any:
        step = Step(id=-2, api=api, version=version, fields=fields)
        address = self._routes.address_for(step)
        connection = self._connections.setdefault(address, Connection(address))
        connection.send(step, self._values)
        outcome = connection.receive(10.0)
        assert outcome is not None, api
        assert outcome.word == "answered", outcome
        return outcome.answer
