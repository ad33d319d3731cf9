"""Parses schemas and their references in worker threads, and caches the last ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import trio

from ottla.registry import formats
from ottla.registry.errors import RegistryError, invalid_schema, too_large
from ottla.registry.formats import AVRO, Parsed
from ottla.registry.limits import MAX_RECORD_BYTES, MAX_REFERENCED_BYTES, MAX_REFERENCES
from ottla.registry.names import context_of, in_context
from ottla.registry.store.records import Content, Reference
from ottla.registry.store.state import State, Version

T = TypeVar("T")

_KEPT: Final = 500
_KEPT_BYTES: Final = 16_000_000
_THREADS: Final = 2


class Whole(NamedTuple):
    """A schema with the texts of all its references, by name: everything that parsing depends on."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]

    @property
    def size_bytes(self) -> int:
        """About what it takes."""
        return len(self.text) + sum(len(text) for _, text in self.references)

    def parsed(self) -> Parsed:
        """Parse it now. Raises RegistryError."""
        return formats.parse(self.kind, self.text, dict(self.references))


class Parser:
    """Understands schemas. Its cache is bounded by the number and by the size of the texts."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Whole, Parsed] = OrderedDict()
        self._kept_bytes = 0
        self._threads = trio.CapacityLimiter(_THREADS)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do work that takes long. It cannot be interrupted, so it has limits of its own."""
        return await trio.to_thread.run_sync(work, limiter=self._threads)

    async def parse(self, whole: Whole) -> Parsed:
        """Parse a schema, or return it from the cache. Raises RegistryError."""
        kept = self._kept.get(whole)
        if kept is not None:
            self._kept.move_to_end(whole)
            return kept
        parsed = await self.in_thread(whole.parsed)
        self._keep(whole, parsed)
        return parsed

    def later(self, whole: Whole) -> Callable[[], Parsed]:
        """A function for a worker thread, which parses a schema or returns the cached one."""
        kept = self._kept.get(whole)
        return whole.parsed if kept is None else partial(_given, kept)

    def _keep(self, whole: Whole, parsed: Parsed) -> None:
        if whole in self._kept:
            return
        self._kept[whole] = parsed
        self._kept_bytes += whole.size_bytes
        while len(self._kept) > _KEPT or self._kept_bytes > _KEPT_BYTES:
            dropped, _ = self._kept.popitem(last=False)
            self._kept_bytes -= dropped.size_bytes


def _given(parsed: Parsed) -> Parsed:
    return parsed


def whole(state: State, content: Content, subject: str, *, is_new: bool = False) -> Whole:
    """A schema of a subject with what it refers to; a new one may not refer to deleted versions.

    Raises RegistryError 42201 if something is missing or there is too much of it.
    """
    if len(content.text.encode("utf-8", "surrogatepass")) > MAX_RECORD_BYTES:
        raise too_large(f"A schema may have {MAX_RECORD_BYTES} bytes")
    found: dict[str, str] = {}
    _Gathering(state, content.kind, found, is_new=is_new).gather(content.references, context_of(subject), 0)
    return Whole(content.kind, content.text, tuple(found.items()))


class _Gathering:
    """Those that others refer to come first; a circle, which another registry may write, ends where it closes."""

    def __init__(self, state: State, kind: str, found: dict[str, str], *, is_new: bool) -> None:
        self._state = state
        self._kind = kind
        self._found = found
        self._is_new = is_new
        self._asked: set[str] = set()
        self._targets: set[tuple[str, int]] = set()
        self._size_bytes = 0

    def gather(self, references: Sequence[Reference], context: str, depth: int) -> None:
        for reference in references:
            if reference.name in self._asked:
                continue
            self._asked.add(reference.name)
            if len(self._asked) > MAX_REFERENCES or depth > MAX_REFERENCES:
                raise invalid_schema(f"The schema refers to more than {MAX_REFERENCES} others")
            version = self._version(reference, context)
            target = version.subject, version.version
            if self._kind == AVRO and target in self._targets:
                continue  # the same types under another name
            self._targets.add(target)
            self.gather(version.content.references, context_of(version.subject), depth + 1)
            self._size_bytes += len(version.content.text)
            if self._size_bytes > MAX_REFERENCED_BYTES:
                raise invalid_schema(f"What the schema refers to has more than {MAX_REFERENCED_BYTES} bytes")
            self._found[reference.name] = version.content.text

    def _version(self, reference: Reference, context: str) -> Version:
        subject = in_context(context, reference.subject)
        number = reference.version
        if number == -1:
            live = [it for it in self._state.versions(subject) if not it.deleted]
            version = live[-1] if live else None
        else:
            version = self._state.version(subject, number)
        if version is None or (version.deleted and self._is_new):
            raise _no_reference(reference)
        if version.content.kind != self._kind:
            raise invalid_schema(
                f"The reference {reference.name} is to a schema of type {version.content.kind}, not {self._kind}"
            )
        return version


def _no_reference(reference: Reference) -> RegistryError:
    return invalid_schema(
        f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
    )
