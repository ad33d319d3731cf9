"""`/schemas`: by id, by GUID, all of them, and the types."""

from __future__ import annotations

from typing import Any, Final

from ottla.registry import answers, errors, formats
from ottla.registry.http.access import Right
from ottla.registry.http.call import Call, Text
from ottla.registry.http.subjects import matches, subject_prefix
from ottla.registry.limits import MAX_ID
from ottla.registry.store.state import IdEntry, Version

_DEFAULT_LIMIT: Final = 1_000


async def types(_: Call) -> list[str]:
    """GET /schemas/types."""
    return list(formats.KINDS)


async def by_id(call: Call) -> Any:
    """GET /schemas/ids/{id}."""
    entry = _entry(call)
    answer = answers.content(entry, await _text(call, entry))
    answer["guid"] = entry.guid
    if call.query.flag("fetchMaxId"):
        answer["maxId"] = call.registry.state.highest_id(call.context)
    return answer


async def text_by_id(call: Call) -> Text:
    """GET /schemas/ids/{id}/schema."""
    entry = _entry(call)
    return Text(await _text(call, entry) or entry.content.text)


async def subjects_of_id(call: Call) -> list[str]:
    """GET /schemas/ids/{id}/subjects."""
    return call.query.page(sorted({version.subject for version in _places(call)}))


async def versions_of_id(call: Call) -> list[dict[str, Any]]:
    """GET /schemas/ids/{id}/versions."""
    places = sorted((version.subject, version.version) for version in _places(call))
    return call.query.page([{"subject": subject, "version": version} for subject, version in places])


async def by_guid(call: Call) -> Any:
    """GET /schemas/guids/{guid}."""
    entry = _by_guid(call)
    return answers.content(entry, await _text(call, entry)) | {"guid": entry.guid}


async def ids_of_guid(call: Call) -> list[dict[str, Any]]:
    """GET /schemas/guids/{guid}/ids."""
    state, wanted = call.registry.state, _by_guid(call)
    found = ((name, state.by_fingerprint(wanted.fingerprint, name)) for name in state.contexts())
    return [{"context": name, "id": entry.id} for name, entry in found if entry is not None and _may_read(call, entry)]


async def list_all(call: Call) -> list[dict[str, Any]]:
    """GET /schemas."""
    state, query = call.registry.state, call.query
    prefix, wants_deleted, latest = subject_prefix(call), query.flag("deleted"), query.flag("latestOnly")
    offset, limit = max(0, query.number("offset", 0)), query.number("limit", _DEFAULT_LIMIT)
    wanted = offset + (limit if 0 <= limit <= _DEFAULT_LIMIT else _DEFAULT_LIMIT)
    names = state.subject_names()

    def choose() -> list[dict[str, Any]]:
        found: list[Version] = []
        for name in sorted(names):
            if len(found) >= wanted:
                break
            if matches(name, prefix) and call.may_read(name):
                versions = [it for it in state.versions(name) if wants_deleted or not it.deleted]
                found += versions[-1:] if latest else versions
        return [answers.of_version(version, tells_deleted=True) for version in found[offset:wanted]]

    return await call.registry.parser.in_thread(choose)


def _entry(call: Call) -> IdEntry:
    text = call.parameters["id"]
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_ID):
        raise errors.RegistryError(404, "HTTP 404 Not Found")
    entry = call.registry.by_id(int(text), call.queried_subject())
    if not _may_read(call, entry):
        call.caller.require(Right.READ, entry.versions[0].subject)
    return entry


def _by_guid(call: Call) -> IdEntry:
    guid = call.parameters["guid"]
    entry = call.registry.state.by_guid(guid)
    if entry is None:
        raise errors.schema_not_found(guid)
    if not _may_read(call, entry):
        call.caller.require(Right.READ, entry.versions[0].subject)
    return entry


def _may_read(call: Call, entry: IdEntry) -> bool:
    """The right to read one of the subjects with this id is the right to read the id."""
    return any(call.may_read(version.subject) for version in entry.versions)


def _places(call: Call) -> list[Version]:
    entry, wants_deleted = _entry(call), call.query.flag("deleted")
    subject = call.query.get("subject")
    return [
        version
        for version in entry.versions
        if (wants_deleted or not version.deleted)
        and call.may_read(version.subject)
        and (not subject or version.subject == call.queried_subject())
    ]


async def _text(call: Call, entry: IdEntry) -> str | None:
    form = call.query.get("format")
    return (await call.registry.parsed(entry)).formatted(form) if form else None
