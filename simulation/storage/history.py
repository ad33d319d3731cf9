"""What happened to the logs of one store, in the order in which it may be kept or lost.

A store keeps a prefix of what happened to all of its logs together. An append happens at once; a truncation, a new log
start or a deletion happens at some moment between its call and its return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final
from uuid import UUID

from ottla.simulation.storage.model import Batch, LogModel

__all__ = ["Change", "Event", "Key", "StoreHistory"]

Key = tuple[UUID, int]
Change = Callable[[LogModel], None]
_Choice = tuple[Change | None, ...]
"""What has become of each event of a log; None if nothing has."""

_NEVER: Final = 1 << 62
_SHOWN: Final = 5


@dataclass(eq=False, slots=True)
class Event:
    """A change of one log: lost if the store kept only what came up to `begin`, there if it kept all up to `end`.

    `is_written` says that it is there in any case, even if something that came before `end` is not.
    """

    change: Change
    begin: int
    end: int = _NEVER
    batch: Batch | None = None
    is_written: bool = False
    variants: tuple[Change, ...] = ()
    """Where nobody can tell what has happened: one of these, or nothing."""


@dataclass(eq=False, slots=True)
class _LogHistory:
    """A log as the disk is known to hold it, and what came after."""

    base: LogModel = field(default_factory=LogModel)
    events: list[Event] = field(default_factory=list)

    def choices(self, kept: int) -> Iterator[tuple[_Choice, LogModel]]:
        """The states that are possible if so much was kept, with what has happened in each. The fullest comes first."""
        for choice in product(*(_options(event, kept) for event in self.events)):
            model = self.base.copy()
            for change in choice:
                if change is not None:
                    change(model)
            yield choice, model


def _options(event: Event, kept: int) -> _Choice:
    """What may have become of an event if so much was kept."""
    if event.end <= kept or event.is_written:
        return (event.change,)
    if event.begin < kept:
        return (*(event.variants or (event.change,)), None)
    return (None,)


class StoreHistory:
    """One store's timeline. `written` and `synced` are what a killed process, and a power cut, must leave at least."""

    def __init__(self) -> None:
        self.now = 0
        self.written = 0
        self.synced = 0
        self._logs: dict[Key, _LogHistory] = {}

    def add(self, key: Key, change: Change, batch: Batch | None = None) -> Event:
        """Something happens at once."""
        return self.finish(self.begin(key, change, batch))

    def begin(
        self,
        key: Key,
        change: Change,
        batch: Batch | None = None,
        *,
        since: int | None = None,
        variants: tuple[Change, ...] = (),
    ) -> Event:
        """Something may happen from now on, or has since an earlier moment."""
        event = Event(change, self.now if since is None else since, batch=batch, variants=variants)
        self._logs.setdefault(key, _LogHistory()).events.append(event)
        self.now += 1
        return event

    def finish(self, event: Event, *, is_written: bool = False) -> Event:
        """It has happened; perhaps all that came before its beginning has been written with it."""
        self.now += 1
        event.end = self.now
        if is_written:
            event.is_written = True
            self.is_written(event.begin + 1, synced=False)
        return event

    def is_written(self, moment: int, *, synced: bool) -> None:
        """All that had happened by a moment is written."""
        self.written = max(self.written, moment)
        if synced:
            self.synced = max(self.synced, moment)
            for log in self._logs.values():
                while log.events and log.events[0].end <= self.synced:
                    log.events.pop(0).change(log.base)

    def forget(self, key: Key) -> None:
        """Nothing is known of a log, and nobody wants to know."""
        self._logs.pop(key, None)

    def lose_power(self) -> None:
        """Only what was synced is certain."""
        self.written = self.synced
        for log in self._logs.values():
            for event in log.events:
                event.is_written = False

    def keys_left(self) -> list[Key]:
        """The logs that may hold anything."""
        return [key for key, log in self._logs.items() if log.events or log.base != LogModel()]

    def settle(self, fits: Mapping[Key, Callable[[LogModel], str]]) -> tuple[dict[Key, LogModel] | None, str]:
        """Find what was kept; from now on that is the history. None, and what is wrong, if nothing fits.

        `fits` says of each log that may hold anything what is wrong with a state of it.
        """
        reasons: dict[tuple[object, ...], str] = {}
        said: list[str] = []
        for kept in range(self.now, self.written - 1, -1):
            chosen: dict[Key, tuple[_Choice, LogModel]] = {}
            for key, log in self._logs.items():
                if key not in fits:
                    continue
                wrong: list[str] = []
                for choice in log.choices(kept):
                    signature = (key, *choice[0])
                    if signature not in reasons:
                        reasons[signature] = fits[key](choice[1])
                    if not reasons[signature]:
                        chosen[key] = choice
                        break
                    wrong.append(reasons[signature])
                if key not in chosen:
                    said.append(f"  with {kept} of {self.now} kept: {key[0]}-{key[1]}: {'; or '.join(wrong)}")
                    break
            else:
                self._keep(kept, chosen)
                return {key: model for key, (_, model) in chosen.items()}, ""
        shown = "\n".join(said[:_SHOWN])
        return None, f"nothing from {self.written} of {self.now} on fits\n{shown}"

    def _keep(self, kept: int, chosen: Mapping[Key, tuple[_Choice, LogModel]]) -> None:
        for key, log in self._logs.items():
            happened = zip(log.events, chosen[key][0], strict=True) if key in chosen else ()
            log.events = []
            for event, change in happened:
                if change is not None:
                    event.change, event.variants = change, ()
                    event.end = min(event.end, kept)
                    log.events.append(event)
        self.now = self.written = kept
        self.synced = min(self.synced, kept)
