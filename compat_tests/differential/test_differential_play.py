"""How a history is played, on a broker that is none."""

from __future__ import annotations

import pytest

from compat_tests.differential.history import Step
from compat_tests.differential.playing.connection import Outcome
from compat_tests.differential.playing.play import QUICK, play
from compat_tests.differential.playing.routes import Direct
from compat_tests.differential.values import Values, references

PREFIX = "dabcd-000001-"
sent: list[str] = []


class SlowToJoin:
    """Answers JoinGroup to none but who waits for longer than `QUICK` does by itself."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.awaited: Step | None = None

    def send(self, step: Step, values: Values) -> None:
        self.awaited = step
        sent.append(values.resolved(step.fields["member_id"]))

    def receive(self, patience_s: float) -> Outcome | None:
        step = self.awaited
        assert step is not None
        if step.api == "JOIN_GROUP" and patience_s <= QUICK.grace_s:
            return None
        self.awaited = None
        return Outcome("answered", {"error_code": 0, "member_id": f"member of {step.id}"})

    def close(self) -> None: ...


def test_what_a_request_refers_to_is_waited_for_on_whatever_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compat_tests.differential.playing.play.Connection", SlowToJoin)
    sent.clear()
    joining = Step(id=0, connection="c", api="JOIN_GROUP", fields={"member_id": ""}, may_wait=True)
    plain = Step(id=1, api="HEARTBEAT", fields={"member_id": "~x"})
    named = Step(id=2, api="HEARTBEAT", fields={"member_id": {"$ref": [0, "member_id"], "else": "nobody"}})
    play(Direct(("127.0.0.1", 1)), (joining, plain, named), PREFIX, QUICK)
    assert sent == ["", f"{PREFIX}x", "member of 0"]


def test_references_are_found_in_lists_and_in_what_takes_their_place() -> None:
    older = {"$ref": [3, "a"], "else": {"$ref": [1, "b"], "else": 0}}
    assert references({"topics": [{"id": older}, {"$uuid": "x"}], "epoch": {"$ref": [7, "c"], "plus": 1}}) == {1, 3, 7}
