"""The records that delete versions and subjects: softly, so that they can still be read by id, or for good."""

from __future__ import annotations

from ottla.registry import errors
from ottla.registry.names import SubjectName, context_of
from ottla.registry.settings import check_writable, removed
from ottla.registry.store import records
from ottla.registry.store.producer import Written
from ottla.registry.store.records import Key
from ottla.registry.store.state import State, Version


def of_version(state: State, subject: str, version: Version, *, is_permanent: bool) -> list[Written]:
    """Delete one version. Raises RegistryError 40406, 40407, 42205 or 42206."""
    check_writable(state, subject)
    if is_permanent and not version.deleted:
        raise errors.version_not_soft_deleted(subject, version.version)
    if not is_permanent and version.deleted:
        raise errors.version_soft_deleted(subject, version.version)
    _check_references(state, version)
    if is_permanent:
        return _removed(state, [version])
    written: list[Written] = [(_key(version), version.value(deleted=True).encode())]
    if all(other.deleted or other is version for other in state.versions(subject)):
        written += removed(state, records.MODE, subject) + removed(state, records.CONFIG, subject)
    return written


def of_subject(state: State, subject: str, *, is_permanent: bool) -> tuple[list[Written], list[int]]:
    """Delete all versions of a subject; the second value has those that are deleted.

    Raises RegistryError 40401, 40404, 40405, 42205 or 42206.
    """
    check_writable(state, subject)
    versions = state.versions(subject)
    live = [version for version in versions if not version.deleted]
    if not versions:
        raise errors.subject_not_found(subject)
    if is_permanent and live:
        raise errors.subject_not_soft_deleted(subject)
    if not is_permanent and not live:
        raise errors.subject_soft_deleted(subject)
    own = {(version.subject, version.version) for version in versions}
    for version in versions:
        _check_references(state, version, own)
    if is_permanent:
        return _removed(state, versions), [version.version for version in versions]
    value = records.dumped({"subject": subject, "version": live[-1].version})
    written: list[Written] = [(Key(records.DELETE_SUBJECT, subject).encode(), value)]
    written += removed(state, records.MODE, subject) + removed(state, records.CONFIG, subject)
    return written, [version.version for version in live]


def _removed(state: State, versions: list[Version]) -> list[Written]:
    """Tombstones. The highest id of a context is kept in another record, so that it is never given again."""
    written: list[Written] = []
    context = context_of(versions[0].subject)
    highest = state.highest_id(context)
    if any(version.id == highest for version in versions):
        keeper = SubjectName(context, records.HIGHEST_ID_SUBJECT).qualified
        value = records.dumped({"subject": keeper, "version": 0, records.HIGHEST_ID: highest})
        written.append((Key(records.DELETE_SUBJECT, keeper).encode(), value))
    return written + [(_key(version), None) for version in versions]


def _key(version: Version) -> bytes:
    return Key(records.SCHEMA, version.subject, version.version).encode()


def _check_references(state: State, version: Version, own: set[tuple[str, int]] | None = None) -> None:
    others = [
        it for it in state.referencing(version.subject, version.version) if (it.subject, it.version) not in (own or ())
    ]
    if others:
        key = f"{{magic=1,keytype=SCHEMA,subject={version.subject},version={version.version}}}"
        raise errors.reference_exists(key)
