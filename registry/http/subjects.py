"""`/subjects`: registering, looking up, listing and deleting."""

from __future__ import annotations

from typing import Any, Final

from ottla.registry import answers, errors
from ottla.registry.http.access import Right
from ottla.registry.http.call import Call, Text
from ottla.registry.metadata import properties
from ottla.registry.names import ANY_CONTEXT, DEFAULT_CONTEXT, SubjectName, in_context, parse
from ottla.registry.requests import LATEST, schema_request
from ottla.registry.store.state import Version

_MANY: Final = 1_000


async def list_all(call: Call) -> list[str]:
    """GET /subjects."""
    state, query = call.registry.state, call.query
    prefix = subject_prefix(call)
    wants_deleted, wants_only = query.flag("deleted"), query.flag("deletedOnly")
    names = state.subject_names()

    def choose() -> list[str]:
        found = []
        for name in sorted(names):
            if not matches(name, prefix) or not call.may_read(name):
                continue
            is_live = state.is_live(name)
            if (not is_live) if wants_only else (is_live or wants_deleted):
                found.append(name)
        return query.page(found)

    return choose() if len(names) <= _MANY else await call.registry.parser.in_thread(choose)


def subject_prefix(call: Call) -> str:
    """The value of `?subjectPrefix=` in the context of the address; every context if the address has neither."""
    given = call.query.get("subjectPrefix")
    if call.context == DEFAULT_CONTEXT:
        return ANY_CONTEXT if given is None else given
    return in_context(call.context, given or "")


def matches(name: str, prefix: str) -> bool:
    """Whether a subject begins so: `:*:` in front means in every context."""
    if prefix.startswith(ANY_CONTEXT):
        return parse(name).subject.startswith(prefix.removeprefix(ANY_CONTEXT))
    wanted, own = parse(prefix), parse(name)
    return own.context == wanted.context and own.subject.startswith(wanted.subject)


async def look_up(call: Call) -> Any:
    """POST /subjects/{subject}."""
    subject = call.subject(Right.READ)
    request = schema_request(call.body)
    found = await call.registry.lookup(
        subject, request, normalize=call.query.flag("normalize"), deleted=call.query.flag("deleted")
    )
    return answers.of_version(found, await _text(call, found), tells_deleted=True)


async def delete(call: Call) -> list[int]:
    """DELETE /subjects/{subject}."""
    return await call.registry.delete_subject(call.subject(Right.DELETE), is_permanent=call.query.flag("permanent"))


async def list_versions(call: Call) -> list[int]:
    """GET /subjects/{subject}/versions."""
    subject, query = call.subject(Right.READ), call.query
    if query.flag("deletedOnly"):
        found = call.registry.live_versions(subject, deleted=True)
        return query.page([version.version for version in found if version.deleted])
    found = call.registry.live_versions(subject, deleted=query.flag("deleted"))
    return query.page([version.version for version in found])


async def register(call: Call) -> Any:
    """POST /subjects/{subject}/versions."""
    subject = call.subject(Right.WRITE)
    request = schema_request(call.body)
    version = await call.registry.register(subject, request, normalize=call.query.flag("normalize"))
    answer = answers.of_version(version, await _text(call, version))
    del answer["subject"]
    return answer


async def version(call: Call) -> Any:
    """GET /subjects/{subject}/versions/{version}."""
    found = _version(call)
    return answers.of_version(found, await _text(call, found), tells_deleted=True)


async def version_text(call: Call) -> Text:
    """GET /subjects/{subject}/versions/{version}/schema."""
    found = _version(call)
    return Text(await _text(call, found) or found.content.text)


async def referenced_by(call: Call) -> list[int]:
    """GET /subjects/{subject}/versions/{version}/referencedby: ids."""
    found = _version(call)
    referencing = call.registry.state.referencing(found.subject, found.version)
    return call.query.page(sorted({it.id for it in referencing}))


async def delete_version(call: Call) -> int:
    """DELETE /subjects/{subject}/versions/{version}."""
    subject, number = call.subject(Right.DELETE), call.version()
    return await call.registry.delete_version(subject, number, is_permanent=call.query.flag("permanent"))


async def latest_with_metadata(call: Call) -> Any:
    """GET /subjects/{subject}/metadata?key=…&value=…: the latest version with these properties."""
    subject = call.subject(Right.READ)
    keys, values = call.query.get("key"), call.query.get("value")
    if keys is None or values is None:
        raise errors.unprocessable("key and value are required")
    versions = call.registry.live_versions(subject, deleted=call.query.flag("deleted"))
    for found in reversed(versions):
        if properties(found.content).get(keys) == values:
            return answers.of_version(found, await _text(call, found), tells_deleted=True)
    raise errors.schema_not_found()


async def contexts(call: Call) -> list[str]:
    """GET /contexts."""
    names = [
        name
        for name in call.registry.state.contexts()
        if name == DEFAULT_CONTEXT or call.may_read(SubjectName(name, "").qualified)
    ]
    return call.query.page(names)


def _version(call: Call) -> Version:
    subject, number = call.subject(Right.READ), call.version()
    return call.registry.version(subject, number, deleted=call.query.flag("deleted") and number != LATEST)


async def _text(call: Call, found: Version) -> str | None:
    form = call.query.get("format")
    return (await call.registry.parsed(found.entry)).formatted(form) if form else None
