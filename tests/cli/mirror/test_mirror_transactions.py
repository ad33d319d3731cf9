"""What a promotion does with transactions that the source has decided about, and whose markers are not there yet."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli import CommandError
from ottla.cli.mirror import transactions as mirror_transactions
from ottla.cli.mirror.transactions import committed_there, undecided_there, wait_for_markers


class Source:
    """A cluster of two brokers, as a client sees it: each coordinates some transactions, which are in some state."""

    def __init__(self, *states: dict[int, str]) -> None:
        self.states = states

    def metadata(self, _: Any) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=node) for node in range(len(self.states))])

    def broker(self, node: int) -> Any:
        return SimpleNamespace(call=lambda request: self._list(self.states[node], request))

    def _list(self, states: dict[int, str], request: Any) -> Any:
        listed = [
            SimpleNamespace(transactional_id=f"id-{producer}", producer_id=producer)
            for producer, state in states.items()
            if state in request.state_filters and producer in request.producer_id_filters
        ]
        return SimpleNamespace(error_code=0, transaction_states=listed)


@pytest.fixture
def open_here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_(*producers: int) -> None:
        monkeypatch.setattr(mirror_transactions, "open_producers", lambda *_: set(producers))

    monkeypatch.setattr(mirror_transactions, "_POLL_SECONDS", 0)
    return set_


def test_markers_that_are_being_written_are_waited_for(
    open_here: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    here: Any = None
    open_here(1, 2)
    source: Any = Source({1: "Ongoing", 3: "PrepareCommit"}, {2: "CompleteAbort"})
    assert not wait_for_markers(here, source, ["t"], 0)
    for state in ("PrepareCommit", "PrepareAbort"):
        source.states[1][2] = state
        with pytest.raises(CommandError, match=r"has decided .* 1 transaction .*: id-2"):
            wait_for_markers(here, source, ["t"], 0)
    asked = []

    def open_until_copied(*_: Any) -> set[int]:
        asked.append(1)
        return {1} if len(asked) > 2 else {1, 2}

    monkeypatch.setattr(mirror_transactions, "open_producers", open_until_copied)
    assert wait_for_markers(here, source, ["t"], 60)


def test_what_the_source_commits_at_the_last_moment_is_committed(open_here: Callable[..., None]) -> None:
    here: Any = None
    open_here(1, 2, 3, 4)
    source: Any = Source({1: "Ongoing", 2: "Ongoing", 3: "CompleteCommit"}, {4: "Ongoing", 5: "Ongoing"})
    undecided = undecided_there(here, source, ["t"], 0)
    assert undecided == {1, 2, 4}
    source.states[0][1] = "CompleteCommit"
    source.states[0][2] = "CompleteAbort"
    source.states[1][4] = "PrepareCommit"
    # The third one's commit was that of an earlier transaction.
    assert committed_there(here, source, ["t"], 0, undecided) == {1, 4}
