"""What a worker does not tell is nothing that anybody would be shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reporting import send_what_matters


class Interactor:
    def __init__(self) -> None:
        self.sent: list[str] = []

    def sendevent(self, name: str, **values: Any) -> None:
        self.sent.append(name)


@pytest.mark.parametrize(
    ("when", "outcome", "sections", "is_sent"),
    [
        ("setup", "passed", [], False),
        ("teardown", "passed", [], False),
        ("setup", "passed", [("Captured stdout setup", "text")], True),
        ("call", "passed", [], True),
        ("setup", "skipped", [], True),
        ("setup", "failed", [], True),
        ("call", "failed", [], True),
        ("teardown", "failed", [], True),
    ],
)
def test_only_what_is_expected_is_left_out(when: str, outcome: str, sections: list[Any], is_sent: bool) -> None:
    interactor = Interactor()
    send_what_matters(interactor)
    interactor.sendevent("testreport", data={"when": when, "outcome": outcome, "sections": sections})
    assert interactor.sent == ["testreport"] * is_sent


def test_the_end_of_a_test_is_told_and_its_begin_is_not() -> None:
    interactor = Interactor()
    send_what_matters(interactor)
    for name in ("workerready", "logstart", "logfinish", "runtest_protocol_complete"):
        interactor.sendevent(name, nodeid="any")
    assert interactor.sent == ["workerready", "logfinish", "runtest_protocol_complete"]
