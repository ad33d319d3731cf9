"""Apache Kafka and Ottla side by side, with one history after the other on both."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from compat_tests.brokers.apache_kafka import JVM_OPTIONS, ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST, BrokerProcess
from compat_tests.differential.clean_up import clean_up
from compat_tests.differential.compare import Difference, compared
from compat_tests.differential.end_state import end_state
from compat_tests.differential.history import History, Step
from compat_tests.differential.playing.nodes import Nodes
from compat_tests.differential.playing.play import QUICK, RESTARTED, Player, TimeSlice, play
from compat_tests.differential.playing.routes import Direct

#: So that no history waits where it does not say so, and short sessions and transactions are possible.
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.share.record.lock.duration.ms": "15000",
    "share.coordinator.state.topic.num.partitions": "2",
    # A Fetch of Apache Kafka ends with a segment, and records of histories are years older than their markers.
    "log.roll.ms": str(2**63 - 1),
    "log.index.size.max.bytes": "65536",
    # Assignments are made with the heartbeat that calls for them, not up to a second later.
    **{f"group.{kind}.assignment.interval.ms": "0" for kind in ("consumer", "share", "streams")},
    # No member is gone before both are there again after a restart, however long the slower one takes.
    **{
        f"group.{kind}.{most}session.timeout.ms": "600000"
        for kind in ("consumer", "share", "streams")
        for most in ("max.", "")
    },
    "super.users": "User:ANONYMOUS",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
#: Records are looked at as Apache Kafka looks at them; by default only their batches' headers are.
OTTLA_ONLY: Final = {"ottla.records.validate": "all", "node.id": "1"}
_COORDINATORS: Final = tuple(
    Step(id=number, api="FIND_COORDINATOR", version=6, fields={"key_type": number, "coordinator_keys": [key]})
    for number, key in ((0, "~g"), (1, "~x"), (2, "~g:AAAAAAAAAAAAAAAAAAAAAA:0"))
)


_MOST_WORKERS: Final = 16


class Pair:
    """Both brokers. As a context manager both run inside."""

    #: Whether each is several nodes: then ids of nodes and leader epochs are the brokers' own affair.
    of_nodes = False

    def __init__(self, folder: Path | None = None, ottla_overrides: dict[str, str] | None = None) -> None:
        self._own_folder = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="differential-"))
        self._numbers = itertools.count()
        self._threads = ThreadPoolExecutor(_MOST_WORKERS * len(("kafka", "ottla")))
        self._play_id = os.urandom(2).hex()
        self._make_brokers(ottla_overrides or {})

    def _make_brokers(self, ottla_overrides: dict[str, str]) -> None:
        self.kafka = ApacheKafka(
            self._folder / "kafka",
            overrides=SETTINGS,
            heap_mb=768,
            # Of a run of a minute or two the second compiler takes the greater part.
            jvm_options=(*JVM_OPTIONS, "-XX:TieredStopAtLevel=1"),
        )
        self.ottla = OttlaBroker(self._folder / "ottla", overrides=SETTINGS | OTTLA_ONLY | ottla_overrides)

    def _end_state(self, history: History) -> tuple[Step, ...]:
        return end_state(history)

    def _way(self, broker: Any) -> Direct | Nodes:
        return Direct((HOST, broker.port))

    def _pace(self, pace: TimeSlice) -> tuple[TimeSlice, TimeSlice]:
        """Of Apache Kafka and of Ottla, which answers a change when it is in force everywhere."""
        return pace, dataclasses.replace(pace, settle_s=0.0)

    def ended(self) -> BrokerProcess | None:
        """The broker whose process has ended by itself."""
        return next((broker for broker in self.brokers if broker.has_ended), None)

    def revive(self) -> None:
        """Start what has ended by itself, on what it left behind."""
        for broker in self.brokers:
            if broker.has_ended:
                broker.kill()
                broker.start()

    def differences(
        self, history: History, *, pace: TimeSlice = QUICK, describe: bool = True, keep_as: str | None = None
    ) -> list[Difference]:
        """What differs in the answers to the history, and, with `describe`, in what it left behind.

        That is removed then, unless its names are to be kept with that prefix.
        """
        prefix = keep_as or self.new_prefix()
        steps = history.steps + (self._end_state(history) if describe else ())
        found = self._compared(steps, prefix, pace)
        if keep_as is None:
            self.remove(history, prefix)
        return found

    def remove(self, history: History, prefix: str) -> None:
        self._played(clean_up(history), prefix, QUICK)

    def described(self, history: History, prefix: str) -> list[Difference]:
        """What differs in what a history left behind under that prefix, and is there still."""
        return self._compared(self._end_state(history), prefix, RESTARTED)

    def _compared(self, steps: tuple[Step, ...], prefix: str, pace: TimeSlice) -> list[Difference]:
        kafka, ottla = self._played(steps, prefix, pace)
        return list(compared(steps, kafka, ottla, prefix, of_nodes=self.of_nodes))

    def _played(self, steps: tuple[Step, ...], prefix: str, pace: TimeSlice) -> list[Player]:
        """Both brokers are asked at the same time."""
        playing = [
            self._threads.submit(play, self._way(broker), steps, prefix, each)
            for broker, each in zip(self.brokers, self._pace(pace), strict=True)
        ]
        return [each.result() for each in playing]

    def new_prefix(self) -> str:
        """Of one length, as the sizes of records and requests depend on it."""
        return f"d{self._play_id}-{next(self._numbers):06d}-"

    @property
    def brokers(self) -> tuple[Any, Any]:
        return self.kafka, self.ottla

    def start(self) -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda broker: broker.start(), self.brokers))
        self._find_coordinators()

    def replace_ottla(self, ottla: OttlaBroker) -> None:
        """With another one, which is started."""
        self.ottla.stop()
        self.ottla = ottla
        self.ottla.start()
        self._find_coordinators()

    def restart(self, *, kill_ottla: bool) -> None:
        """Both at once. Apache Kafka is stopped: killed it keeps others waiting for its old session."""
        with ThreadPoolExecutor(2) as threads:
            ends: list[Any] = [self.kafka.stop, self.ottla.kill if kill_ottla else self.ottla.stop]
            list(threads.map(lambda end: end(), ends))
        self.start()

    def _find_coordinators(self) -> None:
        """Their topics are made by the first request for one."""
        for broker in self.brokers:
            for _ in range(40):
                outcomes = play(self._way(broker), _COORDINATORS, self.new_prefix(), QUICK).outcomes
                # Where others keep the cores busy there may be no answer in time.
                answers = [outcome.answer for outcome in outcomes.values()]
                if all(answer and not answer["coordinators"][0]["error_code"] for answer in answers):
                    break

    def close(self) -> None:
        self._threads.shutdown()
        for broker in self.brokers:
            try:
                broker.stop()
            except (AssertionError, subprocess.TimeoutExpired):
                continue
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
