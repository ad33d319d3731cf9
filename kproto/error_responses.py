"""Whole responses that carry nothing but an error: for any API, as its request was asked."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages import response_class
from ottla.kproto.schema import Struct, StructType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.kproto.codec import Steps
    from ottla.kproto.errors import ErrorCode
    from ottla.kproto.schema import Request, Response


def error_response(request: Request, version: int, code: ErrorCode) -> Response | None:
    """The API's own way to say that a whole request failed, as Kafka's `getErrorResponse`.

    It is the top-level error code where the version has one; otherwise one for each thing that the request named. None
    where nothing may be answered: a Produce with acks=0.
    """
    steps = error_response_in_steps(request, version, code)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            response: Response | None = end.value
            return response


def item_errors_in_steps(request: Request, version: int, code: ErrorCode) -> Steps[Response | None]:
    """The same for what the request names, item by item, also where the version could fail as a whole."""
    if request.API_KEY is ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
        return None
    response = response_class(request.API_KEY)()
    yield from _fail_items(response, request, version, code)
    return response


def error_response_in_steps(request: Request, version: int, code: ErrorCode) -> Steps[Response | None]:
    """`error_response` with a stop after each thing that the request names."""
    if request.API_KEY is ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
        return None
    response = response_class(request.API_KEY)()
    yield from _fail(response, request, version, code)
    return response


# Answers whose parts have the code of the whole as well, up to a version.
_SAID_TWICE: Final = {
    ApiKey.ELECT_LEADERS: ApiKey.ELECT_LEADERS.valid_versions.highest,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiKey.ALTER_PARTITION_REASSIGNMENTS.valid_versions.highest,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS.valid_versions.highest,
    ApiKey.FETCH: 12,
}
_CODE_FIELDS: Final = ("error_code", "partition_error_code")
# Where request and response name the same thing differently.
_ALIASES: Final = {
    "partition_index": ("index", "partition"),
    "partition": ("partition_index",),
    "partition_id": ("partition_index",),
    "topic_name": ("name",),
    "user": ("name",),
}


def _fail(answer: Struct, asked: Any, version: int, code: ErrorCode) -> Steps[None]:
    """Set the answer's error code, or else fail each element of its first list that has one somewhere."""
    fields = [field for field in answer.FIELDS if field.versions.includes(version)]
    for field in fields:
        if field.name == "error_message" and field.nullable.includes(version):
            setattr(answer, field.name, None)  # the code says all there is; by default some say ""
    for field in fields:
        if field.name in _CODE_FIELDS:
            setattr(answer, field.name, code)
            key = getattr(answer, "API_KEY", None)
            if key is None or version > _SAID_TWICE.get(key, -1):
                return
            break
    yield from _fail_items(answer, asked, version, code)


def _fail_items(answer: Struct, asked: Any, version: int, code: ErrorCode) -> Steps[None]:
    fields = [field for field in answer.FIELDS if field.versions.includes(version)]
    for field in fields:
        element = field.element
        if field.kind == "array" and isinstance(element, StructType) and _has_error_code(element, version):
            failed: list[Any] = []
            setattr(answer, field.name, failed)
            for item in _asked(asked, version):
                failed.append((yield from _failed(element, item, version, code)))
                yield
            return


def _failed(element: StructType, item: Any, version: int, code: ErrorCode) -> Steps[Any]:
    """The answer to one thing that was asked: it names the same thing, and fails."""
    failed = element()
    # What is -1 unless somebody knows better tells of a result, and does not name anything.
    fields = [f for f in element.FIELDS if f.kind != "array" and "error" not in f.name and f.default != -1]
    if isinstance(item, Struct):
        for field in fields:
            source = next((n for n in (field.name, *_ALIASES.get(field.name, ())) if hasattr(item, n)), None)
            if source is not None and (getattr(item, source) is not None or field.nullable.includes(version)):
                setattr(failed, field.name, getattr(item, source))
            elif source is not None and field.kind == "string":
                setattr(failed, field.name, "")  # as Kafka answers a null name
        for field in element.FIELDS:
            inner, named = field.element, getattr(item, field.name, None)
            if isinstance(inner, StructType) and isinstance(named, list) and not _has_error_code(inner, version):
                setattr(failed, field.name, (yield from _same_items(inner, named)))
    else:
        # In a list of bare names or numbers these are what the first field repeats.
        setattr(failed, fields[0].name, item)
    yield from _fail(failed, item, version, code)
    return failed


def _same_items(element: StructType, named: list[Any]) -> Steps[list[Any]]:
    """What the items of a list say that has no errors of its own."""
    same = []
    for item in named:
        if _says_all(element, item):
            same.append(_same(element, item))
        yield
    return same


def _says_all(element: StructType, item: Any) -> bool:
    """Whether the item names all that the answer's part consists of: else that tells of what was not done."""
    return all(hasattr(item, field.name) for field in element.FIELDS)


def _same(element: StructType, item: Any) -> Any:
    """What the item says, as part of an answer."""
    same = element()
    for field in element.FIELDS:
        setattr(same, field.name, getattr(item, field.name))
    return same


def _asked(asked: Any, version: int) -> Iterator[Any]:
    """The first list of the request in this version: what the response's list answers, entry by entry."""
    for field in getattr(asked, "FIELDS", ()):
        if field.kind == "array" and field.versions.includes(version):
            items: list[Any] = getattr(asked, field.name) or []
            if getattr(asked, "API_KEY", None) is ApiKey.ALTER_REPLICA_LOG_DIRS:
                return (topic for directory in items for topic in directory.topics)
            if getattr(asked, "API_KEY", None) is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
                return _once_a_name(items, asked.upsertions)
            return iter(items)
    return iter(())


def _once_a_name(*lists: list[Any]) -> Iterator[Any]:
    seen: set[object] = set()
    for item in chain(*lists):
        if item.name not in seen:
            seen.add(item.name)
            yield item


def _has_error_code(element: StructType, version: int) -> bool:
    return any(
        field.versions.includes(version)
        and (
            field.name in _CODE_FIELDS
            or (isinstance(field.element, StructType) and _has_error_code(field.element, version))
        )
        for field in element.FIELDS
    )
