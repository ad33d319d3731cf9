"""The operations of the registry. Their callers have qualified the subjects and checked rights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import trio

from ottla.registry import deletion, errors, settings
from ottla.registry.compatibility import levels
from ottla.registry.compatibility.levels import Earlier
from ottla.registry.errors import RegistryError, UnavailableError
from ottla.registry.formats import AVRO, Parsed
from ottla.registry.limits import MAX_ID, MAX_VERSIONS
from ottla.registry.metadata import populated, same_group
from ottla.registry.names import DEFAULT_CONTEXT, context_of
from ottla.registry.parsing import Parser, whole
from ottla.registry.requests import LATEST, SchemaRequest
from ottla.registry.store import records
from ottla.registry.store.log import SchemaLog, StaleError
from ottla.registry.store.producer import Written
from ottla.registry.store.records import Content, Key, SchemaValue
from ottla.registry.store.state import IdEntry, State, Version, fingerprint
from ottla.registry.writer.election import Election
from ottla.registry.writer.identity import Identity

T = TypeVar("T")

_ATTEMPTS: Final = 30
_MAX_COMPARED_TEXTS: Final = 100


class ForwardError(Exception):
    """Another registry writes: the request is for `writer`."""

    def __init__(self, writer: Identity) -> None:
        super().__init__(writer.url)
        self.writer = writer


class Registry:
    """One registry, on the log of a cluster. Without an election it writes, even if other instances do so, too."""

    def __init__(self, log: SchemaLog, election: Election | None = None) -> None:
        self.log = log
        self.election = election
        self.parser = Parser()
        #: The election of the writer. Another process may write at the same time: `SchemaLog.append` detects that.
        self._writing = trio.Lock()
        self._taking_part = trio.CancelScope()
        self._has_left = trio.Event()

    async def run(self) -> None:
        """Read and write the log until cancelled, and take part in the election until `end`. Call it once."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.log.run)
            nursery.start_soon(self._take_part)

    async def _take_part(self) -> None:
        try:
            with self._taking_part:
                if self.election is not None:
                    await self.election.run()
        finally:
            self._has_left.set()

    async def end(self) -> None:
        """Leave the election: the broker stops next. The log is read until then, so that producers to topics with
        validation are not refused because of a schema that another node has just registered.
        """
        self.log.expect_end()
        self._taking_part.cancel()
        await self._has_left.wait()

    @property
    def state(self) -> State:
        """The state that the log's records make."""
        return self.log.state

    # Looking up

    def live_versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """A subject's versions, with the deleted ones if asked for; RegistryError 40401 if there are none."""
        found = [it for it in self.state.versions(subject) if deleted or not it.deleted]
        if not found:
            raise errors.subject_not_found(subject)
        return found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """One version. RegistryError 40401 or 40402."""
        found = self.live_versions(subject, deleted=deleted)
        if number == LATEST:
            return found[-1]
        version = self.state.version(subject, number)
        if version is None or (version.deleted and not deleted):
            raise errors.version_not_found(number)
        return version

    def by_id(self, schema_id: int, subject: str | None) -> IdEntry:
        """The schema of an id in the context of a subject, or in any. RegistryError 40403."""
        context = DEFAULT_CONTEXT if subject is None else context_of(subject)
        entry = self.state.by_id(schema_id, context)
        if entry is None and context == DEFAULT_CONTEXT and subject:
            # An unqualified subject may be meant in any context: the one in which it has this id.
            for other in self.state.contexts():
                found = self.state.by_id(schema_id, other)
                if found is not None and any(it.subject == f":{other}:{subject}" for it in found.versions):
                    return found
        if entry is None:
            raise errors.schema_not_found(schema_id)
        return entry

    async def parsed(self, entry: IdEntry) -> Parsed:
        """A stored schema, understood. RegistryError 42201."""
        return await self._parse(entry.content, entry.versions[0].subject)

    async def lookup(self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool) -> Version:
        """The version of a subject that has this schema. RegistryError 40401, 40403 or 42201."""
        if not any(deleted or not it.deleted for it in self.state.versions(subject)):
            raise errors.subject_not_found(subject)
        normalize = normalize or self._normalizes(subject)
        content, parsed = await self._understood(subject, request.content, normalize=normalize, is_new=False)
        found = await self._equal(subject, content, parsed, deleted=deleted)
        if found is None:
            raise errors.schema_not_found()
        return found

    async def _equal(self, subject: str, content: Content, parsed: Parsed, *, deleted: bool) -> Version | None:
        """The newest version with the same schema, written in any way."""
        entry = self.state.by_fingerprint(fingerprint(content), context_of(subject))
        candidates = [it for it in self.state.versions(subject) if deleted or not it.deleted]
        for version in reversed(candidates):
            if version.entry is entry:
                return version
        others = [it for it in reversed(candidates[-_MAX_COMPARED_TEXTS:]) if it.content.kind == content.kind]
        for version in others:
            if _is_same_text(version.content, content):
                return version
        if content.kind == AVRO and (content.references or not any(it.content.references for it in others)):
            return None
        if content.kind == records.AVRO or content.kind == "PROTOBUF":
            ways = [(it, self.parser.later(whole(self.state, it.content, subject))) for it in others]
            return await self.parser.in_thread(partial(_first_equal, parsed, content, ways))
        return None

    # Compatibility

    async def compatibility_messages(
        self, subject: str, request: SchemaRequest, numbers: Sequence[int] | None, *, normalize: bool
    ) -> list[str]:
        """Why a schema is not compatible with these versions of a subject, or with those of its level (None)."""
        config = settings.config_in_scope(self.state, subject)
        content, parsed = await self._understood(subject, request.content, normalize=normalize, is_new=True)
        if numbers is None:
            versions = [it for it in self.state.versions(subject) if not it.deleted]
            versions = same_group(config, content, versions)
        else:
            versions = [self.version(subject, number) for number in numbers]
        return await self._messages(content, parsed, versions, str(config["compatibilityLevel"]))

    async def _messages(self, content: Content, parsed: Parsed, versions: Sequence[Version], level: str) -> list[str]:
        compared = levels.compared(level, [self._earlier(it) for it in versions])
        if not compared:
            return []
        work = partial(levels.messages, content.kind, parsed, compared, level)
        return await self.parser.in_thread(work)

    def _earlier(self, version: Version) -> Earlier:
        def parse() -> Parsed:
            return self.parser.later(whole(self.state, version.content, version.subject))()

        return Earlier(version.version, version.content.kind, version.content.text, parse)

    # Registering

    async def register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Version:
        """Register a schema; returns the version that has it, which may have had it before.

        RegistryError 409, 42201, 42205, 42209 or 5xx.
        """
        for _ in range(_ATTEMPTS):
            self._check_mode(subject, request)
            versions = self.state.versions(subject)
            config = settings.config_in_scope(self.state, subject)
            is_import = settings.mode_in_scope(self.state, subject) == settings.IMPORT
            live = [it for it in versions if not it.deleted]
            wanted = request.content if is_import else populated(request.content, config, live)
            if not wanted.text.strip():
                raise errors.invalid_schema("Empty schema")
            should_normalize = normalize or bool(config.get("normalize"))
            content, parsed = await self._understood(subject, wanted, normalize=should_normalize, is_new=not is_import)
            if request.version == 0:
                known = await self._equal(subject, content, parsed, deleted=False)
                if known is not None and request.id in (-1, known.id):
                    return known
            await self._require_turn()
            if not is_import:
                compared = same_group(config, content, live)
                found = await self._messages(content, parsed, compared, str(config["compatibilityLevel"]))
                if found:
                    raise errors.incompatible(f"{subject}: [{', '.join(found)}]")
            async with self._writing:
                if (
                    not self._has_turn
                    or self.state.versions(subject) != versions
                    or settings.config_in_scope(self.state, subject) != config
                ):
                    continue
                position = self.log.position
                value, written = self._registered(subject, request, content, versions, is_import=is_import)
                try:
                    await self.log.append(position, written)
                except StaleError:
                    continue
                registered = self.state.version(subject, value.version)
            if registered is not None and registered.id == value.id:
                return registered
        raise UnavailableError("Others change the same subject all the time")

    def _registered(
        self, subject: str, request: SchemaRequest, content: Content, versions: list[Version], *, is_import: bool
    ) -> tuple[SchemaValue, list[Written]]:
        state, context = self.state, context_of(subject)
        if state.version_count >= MAX_VERSIONS:
            raise errors.not_permitted(f"The registry has {MAX_VERSIONS} versions, which is as many as it may have")
        number = state.next_version(subject)
        if request.version and request.version != number and not is_import:
            raise errors.invalid_schema("Version is not one more than previous version")
        number = request.version or number
        entry = state.by_fingerprint(fingerprint(content), context)
        if request.id >= 0:
            known = state.by_id(request.id, context)
            if known is not None and known.fingerprint != fingerprint(content):
                raise errors.not_permitted(f"Overwrite new schema with id {request.id} is not permitted.")
            schema_id = request.id
        elif entry is not None:
            schema_id = entry.id
        else:
            schema_id = state.highest_id(context) + 1
            if schema_id > MAX_ID:
                raise errors.not_permitted("All ids have been given")
        guid = IdEntry(schema_id, content, fingerprint(content), None).guid
        value = SchemaValue(subject, number, schema_id, content, guid=guid)
        written: list[Written] = []
        if context != DEFAULT_CONTEXT and not state.has_context(context):
            fields = {"tenant": "default", "context": context}
            written.append((Key(records.CONTEXT, context).encode(), records.dumped(fields)))
        # As Confluent does: an older, deleted version with this id gives way to the new one.
        written += [
            (Key(records.SCHEMA, subject, it.version).encode(), None)
            for it in versions
            if it.deleted and it.id == schema_id and it.version < number
        ]
        encoded = value.encode()
        if len(encoded) > 1_040_000:
            raise errors.too_large("Write failed because schema is too large")
        written.append((Key(records.SCHEMA, subject, number).encode(), encoded))
        return value, written

    def _check_mode(self, subject: str, request: SchemaRequest) -> None:
        settings.check_writable(self.state, subject)
        mode = settings.mode_in_scope(self.state, subject)
        if request.id >= 0 and mode != settings.IMPORT:
            raise errors.not_permitted(f"Subject {subject} is not in import mode")
        if request.id < 0 and mode != settings.READWRITE:
            raise errors.not_permitted(f"Subject {subject} is not in read-write mode")

    @property
    def _has_turn(self) -> bool:
        return self.election is None or self.election.is_writer

    async def _require_turn(self) -> None:
        """Return if this registry writes. Raises ForwardError if another one does, RegistryError 50004 if nobody."""
        writer = None if self.election is None else await self.election.writer()
        if writer is not None:
            raise ForwardError(writer)

    # Changing the rest

    async def change(self, decide: Callable[[State], tuple[list[Written], T]]) -> T:
        """Write the records that `decide` makes of the present state, and return its second value."""
        for _ in range(_ATTEMPTS):
            await self._require_turn()
            async with self._writing:
                if not self._has_turn:
                    continue
                position = self.log.position
                written, result = decide(self.state)
                if not written:
                    return result
                try:
                    await self.log.append(position, written)
                except StaleError:
                    continue
            return result
        raise UnavailableError("Others write all the time")

    async def delete_version(self, subject: str, number: int, *, is_permanent: bool) -> int:
        """Delete a version; returns its number."""

        def decide(state: State) -> tuple[list[Written], int]:
            # Without `permanent` the latest is the latest that is not deleted.
            version = self.version(subject, number, deleted=number != LATEST or is_permanent)
            return deletion.of_version(state, subject, version, is_permanent=is_permanent), version.version

        return await self.change(decide)

    async def delete_subject(self, subject: str, *, is_permanent: bool) -> list[int]:
        """Delete a subject; returns its versions."""
        return await self.change(lambda state: deletion.of_subject(state, subject, is_permanent=is_permanent))

    # Understanding

    async def _understood(
        self, subject: str, content: Content, *, normalize: bool, is_new: bool
    ) -> tuple[Content, Parsed]:
        """A schema as it is stored."""
        if not content.text.strip():
            raise errors.invalid_schema("Empty schema")
        parsed = await self._parse(content, subject, is_new=is_new)
        text = parsed.normalized() if normalize else parsed.canonical
        references = content.references
        if any(reference.version == LATEST for reference in references):
            references = tuple(
                it if it.version != LATEST else it._replace(version=self.version(it.subject, LATEST).version)
                for it in references
            )
        if normalize:
            references = tuple(sorted(set(references)))
        return content._replace(text=text, references=references), parsed

    async def _parse(self, content: Content, subject: str, *, is_new: bool = False) -> Parsed:
        return await self.parser.parse(whole(self.state, content, subject, is_new=is_new))

    def _normalizes(self, subject: str) -> bool:
        return bool(settings.config_in_scope(self.state, subject).get("normalize"))


def _is_same_text(stored: Content, given: Content) -> bool:
    """Whether only metadata and rules differ, of which the given one names none."""
    return (
        given.metadata is None
        and given.rule_set is None
        and stored.text == given.text
        and stored.references == given.references
    )


def _first_equal(
    parsed: Parsed, given: Content, stored: Sequence[tuple[Version, Callable[[], Parsed]]]
) -> Version | None:
    """The first version that means the same. For a worker thread."""
    form = "resolved" if given.kind == AVRO else "serialized"
    wanted = parsed.formatted(form)
    for version, parse in stored:
        # With all references resolved, an Avro schema is the same as one that has them.
        if given.kind != AVRO and version.content.references != given.references:
            continue
        try:
            if parse().formatted(form) == wanted:
                return version
        except RegistryError:
            continue
    return None
