"""The answers to failing requests: for any API, each thing that fails has its error code in the right place.

A Kafka request names what it is about in its first list: mostly topics with their partitions. Those that a fault has
chosen are answered as the API answers failures; the rest is served as usual.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import ZERO_UUID, Struct
from ottla.server.apis.errors import error_response
from ottla.testing.apis import topic_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.schema import Field, Request, Response
    from ottla.metadata.image import MetadataImage
    from ottla.server.apis.context import RequestContext
    from ottla.testing.faults.plan import Fault

S = TypeVar("S", bound=Struct)

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors that a Fetch answer has for its session, and not for a partition."""

_SESSIONLESS_EPOCH: Final = -1
_PARTITION_FIELDS: Final = ("partition_index", "index", "partition")


def fits(fault: Fault, context: RequestContext) -> bool:
    """Whether a request names the topic and partition of a fault, if it has any."""
    if fault.topic is None:
        return True
    request, version, image = context.request, context.header.api_version, context.broker.metadata
    if request is None:
        return False
    if request.API_KEY is ApiKey.FETCH and is_incremental(request):
        return True  # only the session knows its partitions
    if request.API_KEY is ApiKey.METADATA and not _named(request, version):
        return True  # it asks for all topics
    return any(_is_chosen(item, fault, image) for item in _named(request, version))


def is_incremental(request: Any) -> bool:
    """Whether a Fetch continues a session (KIP-227), and so leaves out partitions that it is about."""
    return bool(request.session_epoch > 0)


def without_session(request: S) -> S:
    """The same Fetch without a session, so that the client names all its partitions the next time, too."""
    changed: Any = copy.copy(request)
    changed.session_id, changed.session_epoch = 0, _SESSIONLESS_EPOCH
    return changed  # type: ignore[no-any-return]


def split(request: Request, version: int, fault: Fault, image: MetadataImage) -> tuple[Request, Request | None]:
    """The part of a request that fails, and the part that does not; None for an empty part."""
    if fault.topic is None:
        return request, None
    failing: list[Any] = []
    rest: list[Any] = []
    for item in _named(request, version):
        if not _is_chosen(item, fault, image):
            rest.append(item)
        elif fault.partition is None:
            failing.append(item)
        else:
            partitions = _list_field(item, version)
            assert partitions is not None
            chosen = [it for it in getattr(item, partitions.name) if _partition(it) == fault.partition]
            others = [it for it in getattr(item, partitions.name) if _partition(it) != fault.partition]
            failing.append(_with(item, partitions, chosen))
            if others:
                rest.append(_with(item, partitions, others))
    field = _list_field(request, version)
    assert field is not None
    return _with(request, field, failing), _with(request, field, rest) if rest else None


def failed(request: Request, version: int, code: ErrorCode) -> Response | None:
    """The answer to a request that fails completely; None if nothing may be answered."""
    if request.API_KEY is ApiKey.FETCH and code not in SESSION_ERRORS:
        return _failed_fetch(request, code)
    return error_response(request, version, code)


def merge(response: Response | None, failed: Response | None, version: int) -> Response | None:
    """Merges the answer to the rest of a request with the answer to the part that failed."""
    if response is None or failed is None:
        return response
    field = _list_field(response, version)
    assert field is not None
    answered: list[Any] = getattr(response, field.name)
    for item in getattr(failed, field.name):
        same = next((it for it in answered if topic_name(it) == topic_name(item)), None)
        inner = _list_field(item, version)
        if same is None or inner is None:
            answered.append(item)
        else:
            getattr(same, inner.name).extend(getattr(item, inner.name))
    return response


def fail_topics(encoded: Any, fault: Fault, version: int) -> Any:
    """A Metadata answer in which the chosen topics, or one partition of them, fail."""
    from ottla.kproto.hot import metadata
    from ottla.kproto.messages.topics.metadata import MetadataResponse

    # Its topics are bytes by now.
    response = codec.parse(MetadataResponse, version, b"".join(metadata.build_parts(encoded, version)))
    for topic in response.topics:
        if fault.topic not in (None, topic.name):
            continue
        if fault.partition is None:
            topic.error_code, topic.partitions = fault.error_code, []
            continue
        for partition in topic.partitions:
            if partition.partition_index == fault.partition:
                partition.error_code, partition.leader_id = fault.error_code, -1
    return response


def _failed_fetch(request: Any, code: ErrorCode) -> Response:
    from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchResponse, PartitionData

    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=asked.partition,
                        error_code=code,
                        high_watermark=-1,
                        aborted_transactions=None,
                        records=b"",
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _list_field(struct: Struct, version: int) -> Field | None:
    """The first list of a message or a part of it, in this version."""
    fields: tuple[Field, ...] = getattr(struct, "FIELDS", ())
    return next((field for field in fields if field.kind == "array" and field.versions.includes(version)), None)


def _named(request: Struct, version: int) -> Sequence[Any]:
    field = _list_field(request, version)
    return () if field is None else getattr(request, field.name) or ()


def _is_chosen(item: Any, fault: Fault, image: MetadataImage) -> bool:
    name, topic_id = topic_name(item)
    if not name and topic_id != ZERO_UUID:
        topic = image.topic_by_id(topic_id)  # type: ignore[arg-type]
        name = None if topic is None else topic.name
    if name != fault.topic:
        return False
    if fault.partition is None:
        return True
    partitions = next((f for f in getattr(item, "FIELDS", ()) if f.kind == "array" and "partition" in f.name), None)
    return partitions is not None and any(_partition(it) == fault.partition for it in getattr(item, partitions.name))


def _partition(item: Any) -> object:
    if isinstance(item, int):
        return item
    return next((getattr(item, name) for name in _PARTITION_FIELDS if hasattr(item, name)), None)


def _with(struct: S, field: Field, items: list[Any]) -> S:
    changed = copy.copy(struct)
    setattr(changed, field.name, items)
    return changed
