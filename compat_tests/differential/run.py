"""Many histories, and what came of them: each difference once, with the shortest history that shows it."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from compat_tests.differential.areas import AREAS, written
from compat_tests.differential.compare import Difference, Key, death
from compat_tests.differential.declared import Declared
from compat_tests.differential.end_state import FIRST_ID
from compat_tests.differential.history import History
from compat_tests.differential.playing.pair import Pair
from compat_tests.differential.playing.play import CAREFUL, QUICK, TimeSlice
from compat_tests.differential.shrink import shrunk

_SLOW_S: Final = 10.0
#: A process that ends first writes what it has.
_ENDING_S: Final = 0.3
#: What differs by time alone is looked at so often again, and no more.
_MOST_UNCONFIRMED: Final = 3


def _say(text: str) -> None:
    print(text, flush=True)


@dataclass
class Finding:
    """A difference that is not declared. `after` are the histories that the run had played when it was found."""

    difference: Difference
    history: History
    after: int
    seen: int = 1
    versions: set[int] = field(default_factory=set)

    def report(self) -> str:
        versions = ",".join(map(str, sorted(self.versions)))
        head = f"{self.difference}\n  area {self.history.area}, seed {self.history.seed}, after {self.after} histories"
        steps = "\n".join(f"    {line}" for line in str(self.history).splitlines())
        return f"{head}, seen {self.seen} times, in versions {versions}\n{steps}"


class Run:
    """Plays histories on a pair, several at a time, and keeps what differs."""

    def __init__(
        self,
        pair: Pair,
        declared: Declared,
        *,
        known: frozenset[Key] = frozenset(),
        shrinks: bool = True,
        folder: Path | None = None,
        say: Callable[[str], None] = _say,
    ) -> None:
        """`known` are differences that are open; without `shrinks` a history is kept as it was found."""
        self._known = known
        self._shrinks = shrinks
        self.seen_again: Counter[Key] = Counter()
        self._pair = pair
        self.declared = declared
        self._folder = folder
        self._say = say
        self._lock = threading.Lock()
        self.findings: dict[Key, Finding] = {}
        #: What differed once and never again: of time, not of behaviour.
        self.unconfirmed: Counter[Key] = Counter()
        self.played = 0
        #: What is left behind by histories that differ in nothing, for a look after a restart; None: it is removed.
        self._left_behind: list[tuple[History, str]] | None = None

    def histories(self, jobs: Sequence[tuple[str, int]], *, workers: int = 4) -> None:
        """Play the histories of those areas and seeds; those that concern the whole broker one at a time, at the end.

        If a broker ends, the histories that were played then are played again, one at a time.
        """
        shared = [job for job in jobs if not AREAS[job[0]].is_exclusive]
        alone = [job for job in jobs if AREAS[job[0]].is_exclusive]
        with ThreadPoolExecutor(workers) as threads:
            again = list(threads.map(self._play_with_others, shared))
        for job in [*(job for job, is_again in zip(shared, again, strict=True) if is_again), *alone]:
            self._play(written(*job), alone=True)

    def play_alone(self, history: History) -> None:
        self._play(history, alone=True)

    def keep_what_is_left(self) -> None:
        self._left_behind = []

    def restart(self, *, kill_ottla: bool) -> None:
        """Both brokers, and then what the histories since `keep_what_is_left` left behind is described once more."""
        self._pair.restart(kill_ottla=kill_ottla)
        how = "a kill" if kill_ottla else "a restart"
        for history, prefix in self._left_behind or ():
            found = [
                dataclasses.replace(difference, path=f"after {how}: {difference.path}", before=history.steps)
                for difference in self._pair.described(history, prefix)
                # How many epochs a start takes is the brokers' own affair.
                if not difference.path.endswith(("leader_epoch", "coordinator_epoch"))
            ]
            for after in self.declared.undeclared(found):
                if after.key in self._known:
                    break
                self._found_after_restart(history, after)
            self._pair.remove(history, prefix)
        self._left_behind = None

    def _found_after_restart(self, history: History, difference: Difference) -> None:
        """It is not shrunk: each try would be a restart."""
        known = self.findings.get(difference.key)
        if known is not None:
            known.seen += 1
            return
        finding = Finding(difference, history, self.played, versions={difference.step.version})
        self.findings[difference.key] = finding
        self._say(finding.report())
        if self._folder is not None:
            history.save(self._folder / f"{history.area}-{history.seed}-restart.json")

    def _play_with_others(self, job: tuple[str, int]) -> bool:
        """Whether a broker ended meanwhile."""
        try:
            self._play(written(*job), alone=False)
        except OSError:
            with self._lock:
                self._pair.revive()
            return True
        return False

    def _play(self, history: History, *, alone: bool) -> None:
        started = time.monotonic()
        prefix = None if self._left_behind is None else self._pair.new_prefix()
        found = self._differences(history, alone=alone, keep_as=prefix)
        if prefix is not None and self._left_behind is not None:
            if self._undeclared(found) or self.declared.ends(found):
                self._pair.remove(history, prefix)
            else:
                self._left_behind.append((history, prefix))
        with self._lock:
            self.played += 1
            after = self.played
        if time.monotonic() - started > _SLOW_S:
            self._say(f"slow: {history.area} {history.seed} took {time.monotonic() - started:.0f} s")
        for difference in self._undeclared(found):
            if difference.key in self._known:
                self.seen_again[difference.key] += 1
                break
            with self._lock:
                known = self.findings.get(difference.key)
                if known is not None:
                    known.seen += 1
                    known.versions.add(difference.step.version)
                    continue
                if self.unconfirmed[difference.key] > _MOST_UNCONFIRMED:
                    continue
            if self._examine(history, difference, after, alone=alone):
                # What else differs may follow from this one: other histories show it if it does not.
                break

    def _examine(self, history: History, difference: Difference, after: int, *, alone: bool) -> bool:
        """Whether it differs when more is waited for, too."""
        describe = difference.step.id >= FIRST_ID

        def found_in(candidate: History, pace: TimeSlice) -> dict[Key, Difference]:
            found = self._differences(candidate, alone=alone, pace=pace, describe=describe)
            return {each.key: each for each in reversed(found)}

        def shows(candidate: History) -> bool:
            found = found_in(candidate, QUICK).get(difference.key)
            # With less in the request it may be another one, which is declared.
            return found is not None and not self._is_declared(found)

        if 0 <= difference.step.id < FIRST_ID:
            end = next(number for number, step in enumerate(history.steps, 1) if step.id == difference.step.id)
            history = history.with_steps(history.steps[:end])
        again = found_in(history, CAREFUL).get(difference.key)
        if again is not None:
            # While other histories keep both brokers busy, one careful look may be too quick, too.
            again = found_in(history, CAREFUL).get(difference.key)
        with self._lock:
            if again is None:
                self.unconfirmed[difference.key] += 1
                return False
            if difference.key in self.findings:
                return True
            finding = Finding(again, history, after, versions={difference.step.version})
            self.findings[difference.key] = finding
        if self._shrinks:
            finding.history = shrunk(history, shows)
            finding.difference = found_in(finding.history, CAREFUL).get(difference.key, again)
        self._say(finding.report())
        if self._folder is not None:
            finding.history.save(self._folder / f"{finding.history.area}-{finding.history.seed}-{after}.json")
        return True

    def _differences(
        self,
        history: History,
        *,
        alone: bool,
        pace: TimeSlice = QUICK,
        describe: bool = True,
        keep_as: str | None = None,
    ) -> list[Difference]:
        """OSError if a broker ended while others were played, too: it is not known then whose work that was."""
        try:
            found = self._pair.differences(history, pace=pace, describe=describe, keep_as=keep_as)
        except OSError:
            if not alone:
                raise
            found = []
        if any(not each.path for each in found):
            # One closed a connection, or did not answer: it may be about to end.
            time.sleep(_ENDING_S)
        ended = self._pair.ended()
        if ended is None:
            return found
        if not alone:
            raise ConnectionError(f"{ended.name} has ended")
        difference = death(ended.name, ended.log_tail(60))
        self._pair.revive()
        return [difference]

    def _undeclared(self, found: list[Difference]) -> list[Difference]:
        """In the order of the steps, each key once."""
        with self._lock:
            rest = self.declared.undeclared(found)
        return list({each.key: each for each in rest}.values())

    def _is_declared(self, difference: Difference) -> bool:
        with self._lock:
            return self.declared.covers(difference)

    def table(self) -> str:
        rows = [
            "\t".join((*map(str, finding.difference.key), str(finding.seen), finding.history.area))
            for finding in self.findings.values()
        ]
        return "\n".join(rows)

    def save_table(self, path: Path) -> None:
        data = [
            {
                "key": finding.difference.key,
                "seen": finding.seen,
                "versions": sorted(finding.versions),
                "after": finding.after,
                "history": finding.history.to_json(),
            }
            for finding in self.findings.values()
        ]
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False))
