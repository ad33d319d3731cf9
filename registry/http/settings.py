"""`/config`, `/mode` and `/compatibility`, and the registry's own description."""

from __future__ import annotations

from typing import Any

from ottla.registry import errors, settings
from ottla.registry.http.access import Right
from ottla.registry.http.call import Call
from ottla.registry.requests import LATEST, schema_request
from ottla.registry.store import records
from ottla.registry.store.producer import Written
from ottla.registry.store.state import State


async def config(call: Call) -> Any:
    """GET /config and /config/{subject}."""
    scope = call.scope(Right.READ_SETTINGS)
    if call.query.flag("defaultToGlobal"):
        return settings.config_in_scope(call.registry.state, scope)
    found = settings.config_of(call.registry.state, scope)
    if found is None:
        raise errors.compatibility_not_configured(str(scope))
    return found


async def change_config(call: Call) -> Any:
    """PUT /config and /config/{subject}."""
    scope = call.scope(Right.CHANGE_SETTINGS)

    def decide(state: State) -> tuple[list[Written], None]:
        return settings.changed_config(state, scope, call.body), None

    await call.registry.change(decide)
    return call.body


async def delete_config(call: Call) -> Any:
    """DELETE /config and /config/{subject}: answers with the previous settings."""
    scope = call.scope(Right.CHANGE_SETTINGS)

    def decide(state: State) -> tuple[list[Written], Any]:
        found = settings.config_of(state, scope)
        if found is None:
            raise errors.subject_not_found(str(scope))
        settings.check_writable(state, scope or "")
        return settings.removed(state, records.CONFIG, scope), found

    return await call.registry.change(decide)


async def mode(call: Call) -> Any:
    """GET /mode and /mode/{subject}."""
    scope = call.scope(Right.READ_SETTINGS)
    if call.query.flag("defaultToGlobal"):
        return {"mode": settings.mode_in_scope(call.registry.state, scope)}
    found = settings.mode_of(call.registry.state, scope)
    if found is None:
        raise errors.mode_not_configured(str(scope))
    return {"mode": found}


async def change_mode(call: Call) -> Any:
    """PUT /mode and /mode/{subject}."""
    scope, wanted = call.scope(Right.CHANGE_SETTINGS), call.body.get("mode")

    def decide(state: State) -> tuple[list[Written], None]:
        return settings.changed_mode(state, scope, wanted, is_forced=call.query.flag("force")), None

    await call.registry.change(decide)
    return call.body


async def delete_mode(call: Call) -> Any:
    """DELETE /mode and /mode/{subject}: answers with the previous mode."""
    scope = call.scope(Right.CHANGE_SETTINGS)

    def decide(state: State) -> tuple[list[Written], Any]:
        found = settings.mode_of(state, scope)
        if found is None:
            raise errors.subject_not_found(str(scope))
        return settings.removed(state, records.MODE, scope), {"mode": found}

    return await call.registry.change(decide)


async def check_all(call: Call) -> Any:
    """POST /compatibility/subjects/{subject}/versions."""
    return await _check(call, call.subject(Right.READ), None)


async def check_version(call: Call) -> Any:
    """POST /compatibility/subjects/{subject}/versions/{version}."""
    subject, number = call.subject(Right.READ), call.version()
    if number == LATEST and not any(not it.deleted for it in call.registry.state.versions(subject)):
        return await _check(call, subject, None)
    return await _check(call, subject, [number])


async def _check(call: Call, subject: str, numbers: list[int] | None) -> Any:
    messages = await call.registry.compatibility_messages(
        subject, schema_request(call.body), numbers, normalize=call.query.flag("normalize")
    )
    answer: dict[str, Any] = {"is_compatible": not messages}
    if call.query.flag("verbose"):
        answer["messages"] = messages
    return answer


async def root(_: Call) -> Any:
    """GET /: that it answers."""
    return {}


async def metadata_id(call: Call) -> Any:
    """GET /v1/metadata/id."""
    clusters = {"kafka-cluster": call.registry.log.cluster_id, "schema-registry-cluster": "schema-registry"}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


async def metadata_version(_: Call) -> Any:
    """GET /v1/metadata/version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"version": version("ottla"), "commitId": ""}
    except PackageNotFoundError:
        return {"version": "", "commitId": ""}
