"""Schemas: the subjects, and each with two versions side by side, a draft to be checked, and who uses it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.console.forms import FormError, read_form
from ottla.console.parameters import integer, text
from ottla.console.selection import select
from ottla.console.subjects import referring, registry_of, side_by_side, text_of, topic_uses
from ottla.metadata.acls import AclOperation, AclResource
from ottla.registry import settings
from ottla.registry.errors import RegistryError
from ottla.registry.requests import schema_request
from ottla.schemas.codec import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.visitors import Visitor
    from ottla.registry.registry import Registry
    from ottla.registry.store.state import Version

MAX_SUBJECTS: Final = 200
_MAX_REFERRING: Final = 100


class Draft(NamedTuple):
    """A schema that is to be checked, and what came of it: None before it was."""

    schema: str = ""
    kind: str = "AVRO"
    problem: str = ""
    messages: Sequence[str] | None = None


def may_read(visitor: Visitor, subject: str) -> bool:
    """A subject is protected as the topic `subject:` and its name, as in the registry."""
    return visitor.may(AclOperation.READ, AclResource.TOPIC, f"subject:{subject}")


async def show_all(console: Console, request: Request) -> Response:
    registry, query = registry_of(console.broker), text(request, "q")
    visitor = console.visitor(request)
    subjects: dict[str, Version] = {}
    page = None
    if registry is not None:
        state = registry.state

        def wanted(name: str) -> bool:
            return query.lower() in name.lower() and state.is_live(name) and may_read(visitor, name)

        page = await select(
            state.subject_names(), matches=wanted, after=text(request, "after") or None, limit=MAX_SUBJECTS
        )
        subjects = {name: live[-1] for name in page.names if (live := _live(registry, name))}
    return await console.page(
        request,
        "subjects.html",
        section="schemas",
        query=query,
        registry=registry,
        page=page,
        subjects=subjects,
        levels={name: _level(registry, name) for name in subjects} if registry is not None else {},
    )


async def show(console: Console, request: Request) -> Response:
    registry, subject = registry_of(console.broker), text(request, "name")
    if registry is None or not may_read(console.visitor(request), subject) or not _live(registry, subject):
        return await console.not_found(request, f"subject {subject}")
    if request.method == "GET":
        return await _page(console, request, registry, subject, Draft(kind=_live(registry, subject)[-1].content.kind))
    try:
        fields = await read_form(request, console.renderer.tokens)
    except FormError as error:
        return await _page(console, request, registry, subject, Draft(problem=str(error)), error.status)
    draft = Draft(fields.get("schema", ""), fields.get("kind", "AVRO"))
    return await _page(console, request, registry, subject, await _checked(registry, subject, draft))


async def _checked(registry: Registry, subject: str, draft: Draft) -> Draft:
    """The draft with what the registry says of it. It may name what the latest version refers to."""
    latest = _live(registry, subject)[-1].content
    references = [reference._asdict() for reference in latest.references] if latest.kind == draft.kind else []
    try:
        asked = schema_request({"schema": draft.schema, "schemaType": draft.kind, "references": references})
        messages = await registry.compatibility_messages(subject, asked, None, normalize=False)
    except RegistryError as error:
        return draft._replace(problem=error.message)
    return draft._replace(messages=messages)


async def _page(
    console: Console, request: Request, registry: Registry, subject: str, draft: Draft, status: int = 200
) -> Response:
    visitor, versions = console.visitor(request), _live(registry, subject)
    shown = _version(versions, integer(request, "version", -1)) or versions[-1]
    before = _version(versions, integer(request, "against", shown.version - 1))
    compare = partial(side_by_side, "" if before is None else text_of(before), text_of(shown))
    if before is None:
        compare = partial(side_by_side, text_of(shown), text_of(shown))
    uses = [it for it in topic_uses(console.broker.metadata, subject) if visitor.may_on_topic("DESCRIBE", it.topic)]
    others = [it for it in referring(registry.state, versions) if may_read(visitor, it.subject)]
    return await console.renderer.page(
        request,
        "subject.html",
        status=status,
        section="schemas",
        subject=subject,
        versions=versions[::-1],
        shown=shown,
        before=before,
        lines=await trio.to_thread.run_sync(compare),
        level=_level(registry, subject),
        uses=uses,
        referring=others[:_MAX_REFERRING],
        draft=draft,
        kinds=KINDS,
    )


def _live(registry: Registry, subject: str) -> list[Version]:
    return [it for it in registry.state.versions(subject) if not it.deleted]


def _version(versions: Sequence[Version], number: int) -> Version | None:
    return next((it for it in versions if it.version == number), None)


def _level(registry: Registry, subject: str) -> str:
    return str(settings.config_in_scope(registry.state, subject)["compatibilityLevel"])
