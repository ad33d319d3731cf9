"""The common parts of version 3's answers: addresses of resources, lists, and the refusal of missing resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponseTopic
from ottla.rest.access import Right
from ottla.rest.errors import RestError
from ottla.rest.http.call import Call

CLUSTER: Final = "/v3/clusters/{cluster}"
TOPIC: Final = f"{CLUSTER}/topics/{{topic}}"
_MAX_NUMBER_LENGTH: Final = 10


def not_found() -> RestError:
    """The resource does not exist."""
    return RestError(404, "HTTP 404 Not Found")


async def known(call: Call, names: list[str] | None) -> MetadataResponse:
    """The cluster in the address. Raises RestError 404."""
    found = await call.proxy.cluster.metadata(names)
    if call.part("cluster") != found.cluster_id:
        raise not_found()
    return found


async def described(call: Call) -> tuple[MetadataResponse, MetadataResponseTopic]:
    found = await known(call, [])
    call.caller.require(Right.DESCRIBE, call.part("topic"))
    return found, await call.proxy.cluster.topic(call.part("topic"))


def number_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_NUMBER_LENGTH):
        raise not_found()
    return int(text)


def url(call: Call, path: str) -> str:
    return str(call.request.base_url).rstrip("/") + path


def cluster_path(found: MetadataResponse) -> str:
    return f"/v3/clusters/{found.cluster_id}"


def topic_path(found: MetadataResponse, state: MetadataResponseTopic) -> str:
    return f"{cluster_path(found)}/topics/{state.name}"


def related(call: Call, path: str) -> dict[str, str]:
    return {"related": url(call, path)}


def resource(call: Call, path: str, *resource: tuple[str, object]) -> dict[str, str]:
    name = "/".join(f"{kind}={it}" for kind, it in resource)
    return {"self": url(call, path), "resource_name": f"crn:///{name}"}


def listed(call: Call, kind: str, path: str, data: Iterable[Any]) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"self": url(call, path), "next": None}, "data": list(data)}
