"""A history on one broker: each step in its order, and what came of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from compat_tests.differential.history import Step
from compat_tests.differential.playing.connection import UNBUILDABLE, WAITING, Connection, Outcome
from compat_tests.differential.playing.nodes import Nodes
from compat_tests.differential.playing.routes import Direct, Routes
from compat_tests.differential.playing.settling import Settling
from compat_tests.differential.values import Values, references
from compat_tests.wire.wire_routes import Address
from ottla.kproto.errors import ErrorCode

#: Answers upon which every client asks again: a coordinator that is being loaded or made, a transaction that is ending.
_LOADING: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_MOVING: Final = _LOADING | {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE}
_ENDING_S: Final = 3.0


@dataclass(frozen=True)
class TimeSlice:
    """How long is waited: for an answer that may wait, once a request refers to it, once it is received, and for a
    change to be known everywhere.
    """

    grace_s: float
    referred_s: float
    patience_s: float
    settle_s: float
    #: For what a broker goes on with behind its answer, and for its next answers to be those that come after it.
    behind_s: float
    #: For an answer that may not wait.
    silence_s: float
    #: For a coordinator.
    loading_s: float = 1.0
    #: For a leader as well: of several nodes, and after a start.
    awaits_leaders: bool = False
    #: For a new leader to hear how much is committed: Apache Kafka's tells its followers with their next fetch.
    leaders_s: float = 0.0


QUICK: Final = TimeSlice(grace_s=0.008, referred_s=0.04, patience_s=0.4, settle_s=0.01, behind_s=0.03, silence_s=2.0)
#: For a difference that may be of time alone.
CAREFUL: Final = TimeSlice(grace_s=0.1, referred_s=0.2, patience_s=1.0, settle_s=0.06, behind_s=0.2, silence_s=4.0)


#: Of three nodes: what one has answered the others hear a moment later, and replicas copy behind the answer.
OF_NODES: Final = TimeSlice(
    grace_s=0.05,
    referred_s=0.2,
    patience_s=1.0,
    settle_s=0.1,
    behind_s=0.15,
    silence_s=6.0,
    loading_s=3.0,
    awaits_leaders=True,
    leaders_s=0.8,
)
#: After a start.
RESTARTED: Final = dataclasses.replace(CAREFUL, loading_s=60.0, awaits_leaders=True)


class Player:
    """Plays one history on one broker; `outcomes` by the step's id.

    Of several nodes each connection of a history is one to each of them.
    """

    def __init__(self, way: Direct | Nodes, prefix: str, pace: TimeSlice) -> None:
        self._pace = pace
        self._values = Values(prefix)
        self._routes = way if isinstance(way, Direct) else Routes(way, self._values)
        self._again = _MOVING if pace.awaits_leaders else _LOADING
        self._connections: dict[str, dict[Address, Connection]] = {}
        self._abandoned: list[Connection] = []
        self._settling = Settling(self._routes, self._values, pace.settle_s, pace.behind_s, pace.leaders_s)
        self.outcomes: dict[int, Outcome] = {}

    @property
    def now_ms(self) -> int:
        return self._values.now_ms

    @property
    def new_epoch(self) -> int:
        return self._values.new_epoch or 0

    def play(self, steps: tuple[Step, ...]) -> dict[int, Outcome]:
        for step in steps:
            self._do(step)
        for name in list(self._connections):
            self._take_awaited(name, self._pace.grace_s)
        return self.outcomes

    def close(self) -> None:
        of_names = [each for connections in self._connections.values() for each in connections.values()]
        for connection in [*of_names, *self._abandoned]:
            connection.close()
        self._settling.close()
        self._routes.close()

    def _do(self, step: Step) -> None:
        if step.until_ended:
            self._settling.await_end(self._values.resolved(step.until_ended), step.wait_ms / 1000)
            return
        if step.wait_ms:
            time.sleep(step.wait_ms / 1000)
            return
        if step.kill or step.start:
            assert isinstance(self._routes, Routes), step
            if step.kill:
                self._leave(self._routes.kill(step.kill, spares=step.spares))
            else:
                self._routes.start(step.start)
            time.sleep(self._pace.leaders_s)
            return
        if step.close:
            for connection in self._connections.pop(step.connection, {}).values():
                connection.close()
            return
        self._take_awaited(step.connection, self._pace.patience_s)
        if step.api:
            self._take_referred(step)
            self._ask(step)

    def _leave(self, address: Address) -> None:
        """Nothing is asked over connections to a process that is gone, when there is another one."""
        self._settling.leave(address)
        for connections in self._connections.values():
            if address in connections:
                connections.pop(address).close()

    def _connection(self, step: Step) -> Connection:
        address = self._routes.address_for(step)
        return self._connections.setdefault(step.connection, {}).setdefault(address, Connection(address))

    def _take_referred(self, step: Step) -> None:
        """What a request refers to may be in an answer that is on its way: the pace must not decide whether it is."""
        referred = references(step.fields)
        for connections in self._connections.values() if referred else ():
            for connection in connections.values():
                awaited = connection.awaited
                if awaited is not None and awaited.id in referred:
                    outcome = connection.receive(self._pace.referred_s)
                    if outcome is not None:
                        self._keep(awaited, outcome)

    def _ask(self, step: Step) -> None:
        started = time.monotonic()
        while True:
            connection = self._connection(step)
            outcome = connection.send(step, self._values)
            if outcome is None and step.may_wait:
                outcome = connection.receive(self._pace.grace_s)
                if outcome is None:
                    self.outcomes[step.id] = Outcome(WAITING)
                    return
            elif outcome is None:
                outcome = connection.receive(self._pace.silence_s)
                if outcome is None:
                    outcome = Outcome("silent")
                    connection.close()
            if time.monotonic() - started >= self._again_s(outcome.answer):
                break
            time.sleep(0.005)
        self._keep(step, outcome)
        if outcome.word != UNBUILDABLE:
            self._settling.after(step, outcome.answer)

    def _again_s(self, answer: Any) -> float:
        """For how long a request that is answered so is asked again."""
        found = set(codes(answer))
        if found & self._again:
            return self._pace.loading_s
        return _ENDING_S if ErrorCode.CONCURRENT_TRANSACTIONS in found else 0.0

    def _take_awaited(self, name: str, patience_s: float) -> None:
        for address, connection in list(self._connections.get(name, {}).items()):
            if connection.awaited is not None:
                self._take(name, address, connection.awaited, patience_s)

    def _take(self, name: str, address: Address, step: Step, patience_s: float) -> None:
        outcome = self._connections[name][address].receive(patience_s)
        if outcome is None:
            # Who waits goes on waiting: to close its connection would be something else.
            self._abandoned.append(self._connections[name].pop(address))
            return
        self._keep(step, outcome)

    def _keep(self, step: Step, outcome: Outcome) -> None:
        self.outcomes[step.id] = outcome
        self._values.answers[step.id] = outcome.answer


def play(way: Direct | Nodes, steps: tuple[Step, ...], prefix: str, pace: TimeSlice) -> Player:
    player = Player(way, prefix, pace)
    try:
        player.play(steps)
    finally:
        player.close()
    return player


def codes(answer: Any) -> Iterator[int]:
    """Every error code of an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield value
            elif isinstance(value, dict | list):
                yield from codes(value)
    elif isinstance(answer, list):
        for each in answer:
            if not isinstance(each, dict):
                return
            yield from codes(each)
