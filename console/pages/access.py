"""The page of access: users with passwords, access control lists, and quotas; shown and changed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio
from starlette.responses import RedirectResponse

from ottla.client.admin.acls import AclTextError, parse_entry
from ottla.client.admin.users import MECHANISMS, credential
from ottla.console.forms import FormError, read_form
from ottla.console.rendering import url
from ottla.metadata.acls import CLUSTER_NAME, Acl, AclFilter, AclOperation, AclPattern, AclResource
from ottla.metadata.changes.quota_changes import QUOTA_NAMES
from ottla.metadata.image import CLIENT_ID, USER, QuotaEntity
from ottla.metadata.scram_changes import ScramDeletion, ScramMechanism, ScramUpsertion
from ottla.metastore.errors import MetadataError
from ottla.runtime.time_slice import TimeSlice
from ottla.server.apis.access.create_acls import acl_of
from ottla.settings.units import with_unit, without_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.visitors import Visitor
    from ottla.server.broker import Broker

MAX_ROWS: Final = 500
"""Of each kind; the command line lists them all."""

_MECHANISM: Final = "SCRAM-SHA-512"
_FIELDS: Final = ("name", "entry", "user", "client", "quota", "value")
"""The fields that forms keep after a mistake: no password."""

_DEFAULT: Final = "*"
"""As a name: the default quota, of entities without one of their own."""


class ChangeError(Exception):
    """The change is refused; the text is for the form."""


class AclRow(NamedTuple):
    """An entry as people read it, and as the form names it."""

    principal: str
    permission: str
    operation: str
    resource: str
    host: str
    key: str


class QuotaRow(NamedTuple):
    """A quota as people read it."""

    entity: str
    name: str
    value: str


async def show(console: Console, request: Request) -> Response:
    """The page, and with a POST one change."""
    problem, status, fields = "", 200, dict[str, str]()
    if request.method == "POST":
        try:
            fields = await read_form(request, console.renderer.tokens)
            await _change(console.broker, console.visitor(request), fields)
            return RedirectResponse(url("access"), 303)
        except FormError as error:
            problem, status = str(error), error.status
        except (ChangeError, MetadataError) as error:
            problem, status = f"{error}", 422
    image = console.broker.metadata
    users: dict[str, list[str]] = {}
    for name, mechanism in await _some(image.scram_credentials):
        users.setdefault(name, []).append(ScramMechanism(mechanism).name.replace("_", "-"))
    quotas = await _some(image.quotas)
    visitor = console.visitor(request)
    return await console.renderer.page(
        request,
        "access.html",
        status=status,
        section="access",
        problem=problem,
        draft={name: fields.get(name, "") for name in _FIELDS},
        users=sorted(users.items()),
        acls=sorted(map(_acl_row, await _some(image.acls))),
        quotas=sorted(
            QuotaRow(_entity_text(entity), name, _number_text(name, value))
            for entity in quotas
            for name, value in image.quotas[entity].items()
        )
        if visitor.may_on_cluster(AclOperation.DESCRIBE_CONFIGS)
        else [],
        quota_names=QUOTA_NAMES[:-1],
        authorizes=console.broker.authorizer is not None,
        may_alter=visitor.may_on_cluster(AclOperation.ALTER),
        may_alter_configs=visitor.may_on_cluster(AclOperation.ALTER_CONFIGS),
        most=MAX_ROWS,
    )


async def _some(found: Iterable[Any]) -> list[Any]:
    """The first MAX_ROWS, taken in steps."""
    slices, some = TimeSlice(), []
    for each in found:
        if slices.is_over:
            await slices.maybe_yield()
        some.append(each)
        if len(some) == MAX_ROWS:
            break
    return some


async def _change(broker: Broker, visitor: Visitor, fields: Mapping[str, str]) -> None:
    """Raises ChangeError, MetadataError or DeniedError."""
    action = fields.get("action", "")
    needed = AclOperation.ALTER_CONFIGS if action == "quota" else AclOperation.ALTER
    visitor.require(needed, AclResource.CLUSTER, CLUSTER_NAME)
    if action == "add-acl":
        await _add_acls(broker, fields.get("entry", ""))
    elif action == "delete-acl":
        await _delete_acl(broker, fields.get("key", ""))
    elif action == "add-user":
        await _add_user(broker, fields.get("name", "").strip(), fields.get("password", ""))
    elif action == "delete-user":
        await _delete_user(broker, fields.get("name", ""))
    elif action == "quota":
        await _set_quota(broker, fields)
    else:
        raise ChangeError("The form says nothing that can be done.")


async def _add_acls(broker: Broker, entry: str) -> None:
    if broker.authorizer is None:
        raise ChangeError("The broker has no authorizer, so no entry would be looked at: set authorizer.class.name.")
    try:
        created = parse_entry(entry)
    except AclTextError as error:
        raise ChangeError(f"{error}.") from None
    await broker.controller.create_acls([acl_of(it, broker) for it in created])


async def _delete_acl(broker: Broker, key: str) -> None:
    chosen = next((acl for acl in broker.metadata.acls if _key(acl) == key), None)
    if chosen is None:
        raise ChangeError("There is no such entry any more.")
    await broker.controller.delete_acls([AclFilter(*chosen)])


async def _add_user(broker: Broker, name: str, password: str) -> None:
    if not name or not password:
        raise ChangeError("A user needs a name and a password.")
    made = await trio.to_thread.run_sync(partial(credential, name, password, _MECHANISM))
    upsertion = ScramUpsertion(name, made.mechanism, made.iterations, made.salt, made.salted_password)
    await _alter_users(broker, name, [], [upsertion])


async def _delete_user(broker: Broker, name: str) -> None:
    known = [ScramDeletion(name, number) for number in MECHANISMS.values() if (name, number) in _keys(broker)]
    if not known:
        raise ChangeError(f"There is no user {name}.")
    await _alter_users(broker, name, known, [])


def _keys(broker: Broker) -> Mapping[Any, object]:
    return broker.metadata.scram_credentials


async def _alter_users(
    broker: Broker, name: str, deletions: list[ScramDeletion], upsertions: list[ScramUpsertion]
) -> None:
    error = (await broker.controller.alter_scram_credentials(deletions, upsertions)).get(name)
    if error is not None:
        raise error


async def _set_quota(broker: Broker, fields: Mapping[str, str]) -> None:
    """An empty value removes the quota."""
    name, text = fields.get("quota", ""), fields.get("value", "").strip()
    given = [(kind, fields.get(field, "").strip()) for kind, field in ((CLIENT_ID, "client"), (USER, "user"))]
    entity: QuotaEntity = tuple(sorted((kind, None if who == _DEFAULT else who) for kind, who in given if who))
    if not entity:
        raise ChangeError("Say whose quota it is: a user's, a client id's, or * for everybody who has none.")
    try:
        value = float(without_unit(name, text)) if text else None
    except ValueError:
        raise ChangeError(f"{text!r} is not a number for {name}: write one such as 1048576 or 1MiB.") from None
    error = (await broker.controller.alter_client_quotas({entity: {name: value}})).get(entity)
    if error is not None:
        raise error


def _acl_row(acl: Acl) -> AclRow:
    kind = acl.resource.name.lower().replace("_", "-")
    prefix = "*" if acl.pattern == AclPattern.PREFIXED else ""
    name = "" if acl.resource is AclResource.CLUSTER else f":{acl.name}{prefix}"
    operation = acl.operation.name.lower().replace("_", "-")
    return AclRow(acl.principal, acl.permission.name.lower(), operation, kind + name, acl.host, _key(acl))


def _key(acl: Acl) -> str:
    return repr(tuple(map(str, acl)))


def _entity_text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {_DEFAULT if name is None else name}" for kind, name in entity)


def _number_text(name: str, value: float) -> str:
    text = str(int(value)) if value == int(value) else repr(value)
    written = with_unit(name, text)
    return text if written is None else f"{text} ({written})"
