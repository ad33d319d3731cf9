"""The state that the records of `_schemas` make, applied in the order of the log."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from ottla.registry.names import DEFAULT_CONTEXT, context_of, in_context, parse
from ottla.registry.store import records
from ottla.registry.store.records import Content, Key, Reference, SchemaValue

logger = logging.getLogger(__name__)

_BUILT_IN: Final = frozenset({DEFAULT_CONTEXT})
_MAX_SPENT: Final = 10_000
_NOTHING: Final[dict[int, Any]] = {}


def fingerprint(content: Content) -> bytes:
    """16 bytes that are equal for equal contents."""
    digest = hashlib.md5(content.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    if content.kind != records.AVRO:
        digest.update(b"\0kind\0" + content.kind.encode())
    for reference in content.references:
        digest.update(f"\0{reference.name}\0{reference.subject}\0{reference.version}".encode("utf-8", "surrogatepass"))
    for part in (content.metadata, content.rule_set):
        if part is not None:
            digest.update(b"\0" + part.encode("utf-8", "surrogatepass"))
    return digest.digest()


def _number(version: Version) -> int:
    return version.version


class Version:
    """A version of a subject."""

    __slots__ = ("deleted", "entry", "subject", "version")

    def __init__(self, subject: str, version: int, entry: IdEntry, *, deleted: bool) -> None:
        self.subject = subject
        self.version = version
        self.entry = entry
        self.deleted = deleted

    @property
    def id(self) -> int:
        return self.entry.id

    @property
    def content(self) -> Content:
        return self.entry.content

    def value(self, *, deleted: bool | None = None) -> SchemaValue:
        """Its record's value."""
        is_deleted = self.deleted if deleted is None else deleted
        return SchemaValue(self.subject, self.version, self.id, self.content, is_deleted, self.entry.guid)


class IdEntry:
    """An id of a context: what it stands for, and the versions that have it."""

    __slots__ = ("content", "fingerprint", "given_guid", "id", "versions")

    def __init__(self, schema_id: int, content: Content, print_: bytes, guid: str | None) -> None:
        self.id = schema_id
        self.content = content
        self.fingerprint = print_
        self.versions: list[Version] = []
        # Hexadecimal digits are compared, which is much faster than making a UUID: a start does it for each schema.
        self.given_guid = None if guid is None or guid.replace("-", "") == print_.hex() else guid

    @property
    def guid(self) -> str:
        """The same for equal schemas of all contexts."""
        return self.given_guid or str(UUID(bytes=self.fingerprint))


class _Ids:
    """The ids of one context."""

    __slots__ = ("by_fingerprint", "by_id", "highest")

    def __init__(self) -> None:
        self.by_id: dict[int, IdEntry] = {}
        self.by_fingerprint: dict[bytes, IdEntry] = {}
        self.highest = 0


class State:
    """Subjects, ids and settings. Only `apply` changes it."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        self._ids: dict[str, _Ids] = {}
        self._referencing: dict[tuple[str, int], list[Version]] = {}
        self._settings: dict[tuple[str, str | None], Mapping[str, Any]] = {}
        self._contexts: set[str] = set()
        #: Versions at which a record was skipped. Its writer removes it, so nobody may take them meanwhile.
        self._spent: dict[str, int] = {}
        self.version_count = 0

    # Reading

    def subject_names(self) -> list[str]:
        """All subjects that have versions, deleted ones included, in no order."""
        return list(self._subjects)

    def is_live(self, subject: str) -> bool:
        """Whether a subject has a version that is not deleted; may be asked in any thread."""
        return any(not version.deleted for version in list(self._subjects.get(subject, _NOTHING).values()))

    def versions(self, subject: str) -> list[Version]:
        """A subject's versions in order, deleted ones included; empty if there is no such subject."""
        found = self._subjects.get(subject)
        return [] if found is None else sorted(list(found.values()), key=_number)  # noqa: C414 - any thread may ask

    def version(self, subject: str, version: int) -> Version | None:
        found = self._subjects.get(subject)
        return None if found is None else found.get(version)

    def next_version(self, subject: str) -> int:
        """The version that the next schema of a subject gets."""
        return max(max(self._subjects.get(subject, _NOTHING), default=0), self._spent.get(subject, 0)) + 1

    def by_id(self, schema_id: int, context: str) -> IdEntry | None:
        ids = self._ids.get(context)
        return None if ids is None else ids.by_id.get(schema_id)

    def by_fingerprint(self, print_: bytes, context: str) -> IdEntry | None:
        ids = self._ids.get(context)
        return None if ids is None else ids.by_fingerprint.get(print_)

    def by_guid(self, guid: str) -> IdEntry | None:
        """The schema of a GUID in any context."""
        try:
            print_ = UUID(guid).bytes
        except ValueError:
            return None
        for ids in self._ids.values():
            entry = ids.by_fingerprint.get(print_)
            if entry is not None and entry.given_guid is None:
                return entry
        given = (entry for ids in self._ids.values() for entry in ids.by_id.values())
        return next((entry for entry in given if entry.given_guid == guid), None)

    def highest_id(self, context: str) -> int:
        """The highest id that was ever given in a context."""
        ids = self._ids.get(context)
        return 0 if ids is None else ids.highest

    def referencing(self, subject: str, version: int) -> list[Version]:
        """The versions that are not deleted and refer to this one."""
        return [it for it in self._referencing.get((subject, version), ()) if not it.deleted]

    def contexts(self) -> list[str]:
        """All contexts in order, the default one included."""
        return sorted(_BUILT_IN | self._contexts | {name for name, ids in self._ids.items() if ids.by_id})

    def has_context(self, context: str) -> bool:
        return context in self._contexts

    def setting(self, keytype: str, subject: str | None) -> Mapping[str, Any] | None:
        """The value of CONFIG or MODE for a subject, a context (`:.context:`), or everything (None)."""
        return self._settings.get((keytype, subject))

    def values(self) -> Iterator[SchemaValue]:
        """Every version."""
        return (version.value() for versions in self._subjects.values() for version in versions.values())

    # Changing

    def apply(self, key_bytes: bytes | None, value_bytes: bytes | None) -> None:
        """Apply a record. One that cannot be read is logged, and changes nothing."""
        if key_bytes is None:
            return
        try:
            key = records.parse_key(key_bytes)
            if key is not None:
                self._apply(key, None if value_bytes is None else records.parse_value(value_bytes))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            shown = bytes(key_bytes[:200]).decode("utf-8", "replace")
            logger.warning("a record of the schemas' topic is skipped: %s (key %s)", error, shown)

    def _apply(self, key: Key, fields: dict[str, Any] | None) -> None:
        if key.keytype == records.SCHEMA:
            if fields is None:
                self._remove(key)
            else:
                self._put(records.schema_value(key, fields))
        elif key.keytype in (records.CONFIG, records.MODE):
            if fields is None:
                self._settings.pop((key.keytype, key.subject), None)
            else:
                self._settings[key.keytype, key.subject] = fields
        elif key.keytype == records.CONTEXT:
            assert key.subject is not None
            if fields is None:
                self._contexts.discard(key.subject)
            else:
                self._contexts.add(key.subject)
        elif fields is not None and key.subject is not None:
            self._end(key, fields)

    def _end(self, key: Key, fields: dict[str, Any]) -> None:
        """DELETE_SUBJECT and CLEAR_SUBJECT."""
        assert key.subject is not None
        if key.keytype == records.DELETE_SUBJECT:
            last = int(fields.get("version") or 0)
            for version in self._subjects.get(key.subject, {}).values():
                version.deleted = version.deleted or version.version <= last
            if (highest := fields.get(records.HIGHEST_ID)) is not None:
                ids = self._ids_of(context_of(key.subject))
                ids.highest = max(ids.highest, int(highest))
        elif key.keytype == records.CLEAR_SUBJECT:
            for number in list(self._subjects.get(key.subject, ())):
                self._remove(Key(records.SCHEMA, key.subject, number))

    def _ids_of(self, context: str) -> _Ids:
        ids = self._ids.get(context)
        if ids is None:
            ids = self._ids[context] = _Ids()
        return ids

    def _put(self, value: SchemaValue) -> None:
        """Take a version over. What a writer has found in its way, and skipped, stays as it was."""
        context = context_of(value.subject)
        ids = self._ids_of(context)
        known = self.version(value.subject, value.version)
        print_ = fingerprint(value.content)
        entry = ids.by_id.get(value.id)
        if value.id > ids.highest:
            ids.highest = value.id
        # The first one to take an id or a version keeps it. Its writer was told so; the other one, which did not know,
        # sees this and takes its record back (SchemaLog). So what has once been read is never undone by another writer.
        if entry is not None and entry.fingerprint != print_:
            self._skip(value, f"the id {value.id} is that of another schema")
            return
        if known is None and value.version <= self._spent.get(value.subject, 0) and not self._imports(value.subject):
            self._skip(value, "this version was skipped before")
            return
        if known is not None and not known.deleted and known.entry is not entry and not self._imports(value.subject):
            self._skip(value, f"this version has the id {known.id}")
            return
        if known is not None:
            self._remove(Key(records.SCHEMA, value.subject, value.version))
            entry = ids.by_id.get(value.id)
        if entry is None:
            entry = ids.by_id[value.id] = IdEntry(value.id, value.content, print_, value.guid)
            ids.by_fingerprint.setdefault(print_, entry)
        version = Version(value.subject, value.version, entry, deleted=value.deleted)
        entry.versions.append(version)
        self._subjects.setdefault(value.subject, {})[value.version] = version
        self.version_count += 1
        for reference in entry.content.references:
            self._referencing.setdefault(self._target(version, reference), []).append(version)

    def _skip(self, value: SchemaValue, why: str) -> None:
        self._spent[value.subject] = max(self._spent.get(value.subject, 0), value.version)
        if len(self._spent) > _MAX_SPENT:
            del self._spent[next(iter(self._spent))]
        logger.info("a record of %s version %d is skipped: %s", value.subject, value.version, why)

    def _imports(self, subject: str) -> bool:
        """Whether versions may be replaced: their subject, its context or everything is in the mode IMPORT."""
        for scope in (subject, f":{context_of(subject)}:", None):
            setting = self._settings.get((records.MODE, scope))
            if setting is not None:
                return setting.get("mode") == "IMPORT"
        return False

    def _remove(self, key: Key) -> None:
        assert key.subject is not None
        version = self.version(key.subject, key.version)
        if version is None:
            return
        versions = self._subjects[key.subject]
        del versions[key.version]
        if not versions:
            del self._subjects[key.subject]
        self.version_count -= 1
        entry = version.entry
        for reference in entry.content.references:
            target = self._target(version, reference)
            self._referencing[target].remove(version)
            if not self._referencing[target]:
                del self._referencing[target]
        entry.versions.remove(version)
        if not entry.versions:
            ids = self._ids[context_of(key.subject)]
            del ids.by_id[entry.id]
            if ids.by_fingerprint.get(entry.fingerprint) is entry:
                del ids.by_fingerprint[entry.fingerprint]

    @staticmethod
    def _target(version: Version, reference: Reference) -> tuple[str, int]:
        return in_context(parse(version.subject).context, reference.subject), reference.version
