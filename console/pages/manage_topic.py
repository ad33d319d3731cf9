"""Creating and changing topics: partitions, settings, deleting records, and deleting the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from starlette.responses import RedirectResponse

from ottla.console.forms import FormError, read_form
from ottla.console.messages.readable import Readable, RemotePartition, find_readable
from ottla.console.messages.times import TimeError, read_time_ms
from ottla.console.nodes import NodeError, ask_each
from ottla.console.parameters import as_integer
from ottla.console.rendering import url
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.changes.topic_changes import USE_DEFAULT, NewPartitions, NewTopic
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.metastore.errors import MetadataError
from ottla.replica.append import TopicIdPartition
from ottla.replica.delete_records import TO_HIGH_WATERMARK
from ottla.replica.errors import ReplicaError
from ottla.settings.units import without_unit
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.visitors import Visitor
    from ottla.metadata.image import TopicImage

T = TypeVar("T")

_TIMEOUT_MS: Final = 10_000
_SHOWN: Final = 5


#: What each form asks an authorizer: the same as the API behind it.
_NEEDED: Final = {
    "partitions": AclOperation.ALTER,
    "settings": AclOperation.ALTER_CONFIGS,
    "records": AclOperation.DELETE,
    "delete": AclOperation.DELETE,
}


class ChangeError(Exception):
    """The change is refused; the text is for the form."""


class Draft(NamedTuple):
    """The form of a new topic as it was filled in."""

    name: str = ""
    partitions: str = ""
    replication: str = ""
    settings: str = ""


async def new(console: Console, request: Request) -> Response:
    """The form for a new topic, and its creation."""
    draft, problem, status = Draft(), "", 200
    if request.method == "POST":
        try:
            fields = await read_form(request, console.renderer.tokens)
            draft = Draft(*(fields.get(name, "").strip() for name in Draft._fields))
            _require_create(console.visitor(request), draft.name)
            await _create(console, draft)
        except FormError as error:
            problem, status = str(error), error.status
        except ChangeError as error:
            problem, status = str(error), 422
        else:
            return RedirectResponse(url("topics", draft.name), 303)
    defaults = console.broker.config
    return await console.renderer.page(
        request, "new_topic.html", status=status, section="topics", draft=draft, problem=problem, defaults=defaults
    )


async def manage(console: Console, request: Request) -> Response:
    """The forms that change a topic, and changing it."""
    topic = console.broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return await console.not_found(request, f"topic {request.path_params['topic']}")
    fields: dict[str, str] = {}
    problem, done, status = "", "", 200
    if request.method == "POST":
        try:
            fields = await read_form(request, console.renderer.tokens)
            needed = _NEEDED.get(fields.get("action", ""))
            if needed is not None:
                console.visitor(request).require(needed, AclResource.TOPIC, topic.name)
            done = await _change(console, topic, fields)
        except FormError as error:
            problem, status = str(error), error.status
        except ChangeError as error:
            problem, status = str(error), 422
        else:
            if fields["action"] == "delete":
                return RedirectResponse(url("topics"), 303)
            topic = console.broker.metadata.topic(topic.name) or topic
    return await console.renderer.page(
        request,
        "manage_topic.html",
        status=status,
        section="topics",
        topic=topic,
        settings=fields["settings"] if problem and "settings" in fields else _seen(console, request, topic),
        fields=fields if problem else {},
        problem=problem,
        done=done,
    )


def _require_create(visitor: Visitor, name: str) -> None:
    """The right to create topics in the cluster makes a right for the single topic unnecessary."""
    if not visitor.may_on_cluster(AclOperation.CREATE):
        visitor.require(AclOperation.CREATE, AclResource.TOPIC, name)


async def _create(console: Console, draft: Draft) -> None:
    topic = NewTopic(
        draft.name,
        _count(draft.partitions, "partitions"),
        _count(draft.replication, "replicas"),
        configs=_settings(draft.settings),
    )
    try:
        await console.broker.controller.create_topic(topic)
    except MetadataError as error:
        raise ChangeError(_said(error)) from None


async def _change(console: Console, topic: TopicImage, fields: Mapping[str, str]) -> str:
    """Carry out what a form asks for, and confirm it. Raises ChangeError."""
    action = fields.get("action", "")
    if action == "partitions":
        count = _count(fields.get("count", "").strip(), "partitions")
        results = await _asked(console.broker.controller.create_partitions([NewPartitions(topic.name, count)]))
        _raise_if_refused(results[topic.name])
        return f"{topic.name} has {count} partitions now."
    if action == "settings":
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        wanted = _settings(fields.get("settings", ""))
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in wanted.items()]
        refusals = await _asked(console.broker.controller.alter_configs({resource: changes}, replace=True))
        _raise_if_refused(refusals[resource])
        return "The settings are changed."
    if action == "records":
        return await _delete_records(console, topic, fields.get("before", "").strip())
    if action == "delete":
        if fields.get("name", "") != topic.name:
            raise ChangeError(f"Write {topic.name} to delete it.")
        deleted = await _asked(console.broker.controller.delete_topics([topic.topic_id]))
        _raise_if_refused(deleted[topic.topic_id])
        return ""
    raise ChangeError("This form asks for something unknown.")


async def _asked(change: Awaitable[T]) -> T:
    try:
        return await change
    except MetadataError as error:
        raise ChangeError(_said(error)) from None


def _raise_if_refused(error: MetadataError | None) -> None:
    if error is not None:
        raise ChangeError(_said(error))


def _said(error: MetadataError) -> str:
    text = str(error) or type(error).__name__.removesuffix("Error")
    return text if text.endswith((".", "!")) else f"{text}."


async def _delete_records(console: Console, topic: TopicImage, before: str) -> str:
    """Delete what is older than a time in all partitions, or everything."""
    here: dict[TopicIdPartition, int] = {}
    elsewhere: dict[int, dict[int, int]] = {}
    found = await find_readable(console.broker, topic, range(len(topic.partitions)), len(topic.partitions))
    refused = list(found.problems)
    for partition in found.partitions:
        offset = TO_HIGH_WATERMARK if before == "now" else await _first_since(console, partition, before)
        if isinstance(partition, RemotePartition):
            elsewhere.setdefault(partition.leader, {})[partition.index] = offset
        else:
            here[TopicIdPartition(topic.topic_id, partition.index)] = offset
    results = await console.broker.replica_manager.delete_records(here, timeout_ms=_TIMEOUT_MS)
    refused += [f"partition {key.partition}: {result.error}" for key, result in results.items() if result.error]
    refused += await _delete_there(console, topic, elsewhere)
    missing = len(topic.partitions) - len(found.partitions)
    if missing and not found.problems:
        refused.append(f"{missing} partitions have no leader")
    if refused:
        more = f", and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise ChangeError(f"Not deleted everywhere: {'; '.join(refused[:_SHOWN])}{more}.")
    return "The records are deleted."


async def _delete_there(console: Console, topic: TopicImage, offsets: Mapping[int, Mapping[int, int]]) -> list[str]:
    """Have other nodes delete records in partitions that they lead; returns what they refused."""
    requests = {
        leader: DeleteRecordsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[
                DeleteRecordsTopic(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in each.items()
                    ],
                )
            ],
        )
        for leader, each in offsets.items()
    }
    answers = await ask_each(console.broker, requests, seconds=_TIMEOUT_MS / 1000)
    return answers.problems + [
        f"partition {each.partition_index}: {ErrorCode.name_of(each.error_code)}"
        for answer in answers.by_node.values()
        for told in answer.topics
        for each in told.partitions
        if each.error_code
    ]


async def _first_since(console: Console, partition: Readable, before: str) -> int:
    """The offset of the first record that is not older than a time; the end if all are older."""
    try:
        found = await partition.offset_at(read_time_ms(before, console.broker.clock.time_ms()))
    except TimeError as error:
        raise ChangeError(str(error)) from None
    except (ReplicaError, StorageError, NodeError) as error:
        raise ChangeError(f"Partition {partition.index}: {error}.") from None
    return TO_HIGH_WATERMARK if found is None else min(found, partition.high_watermark)


def _count(text: str, what: str) -> int:
    if not text:
        return USE_DEFAULT
    number = as_integer(text, 0)
    if number < 1:
        raise ChangeError(f"{text} is not a number of {what}.")
    return number


def _settings(written: str) -> dict[str, str | None]:
    """Lines of name=value; values may have units."""
    settings: dict[str, str | None] = {}
    for line in written.splitlines():
        if not line.strip():
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise ChangeError(f"The line {line!r} has no =: write retention.ms=7d.")
        try:
            settings[name] = without_unit(name, value)
        except ValueError as error:
            raise ChangeError(f"{error}.") from None
    return settings


def _seen(console: Console, request: Request, topic: TopicImage) -> str:
    return _written(topic.configs) if console.visitor(request).may_on_topic("DESCRIBE_CONFIGS", topic.name) else ""


def _written(configs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in sorted(configs.items()))
