"""The list of topics, and one topic with its partitions, settings and the picture of where its bytes lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console import layout
from ottla.console.parameters import integer, text
from ottla.console.selection import select
from ottla.console.throttles import rates, throttled
from ottla.console.topics import figures, held_partition, summarize
from ottla.server.metadata.acls import AclOperation
from ottla.server.replica.partition import Role
from ottla.server.settings.description import ConfigSource, describe_topic

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.throttles import ThrottledReplicas
    from ottla.console.topics import PartitionFigures
    from ottla.server.metadata.image import PartitionState, TopicImage
    from ottla.server.replica.partition import Partition

TOPICS_A_PAGE: Final = 100
PARTITIONS_A_PAGE: Final = 100


class PartitionRow(NamedTuple):
    """A partition as the cluster knows it, its figures if they are known, and what this node holds of it."""

    number: int
    state: PartitionState
    figures: PartitionFigures | None
    held: Partition | None
    throttled: ThrottledReplicas | None

    @property
    def is_offline(self) -> bool:
        return self.held is not None and self.held.role is Role.OFFLINE


async def show_all(console: Console, request: Request) -> Response:
    broker = console.broker
    image = broker.metadata
    query = text(request, "q")
    with_internal = request.query_params.get("internal") == "1"
    wanted = query.lower()
    visitor = console.visitor(request)

    def matches(name: str) -> bool:
        if wanted not in name.lower():
            return False
        if not visitor.may_on_topic("DESCRIBE", name):
            return False
        return with_internal or not name.startswith("__") or not image.topics[name].is_internal

    page = await select(image.topics, matches=matches, after=request.query_params.get("after"), limit=TOPICS_A_PAGE)
    rates = console.history.topic_rates
    topics = [image.topics[name] for name in page.names]
    known = await figures(broker, ((topic, range(len(topic.partitions))) for topic in topics))
    summaries = [await summarize(broker, topic, known, rates.get(topic.topic_id, 0.0)) for topic in topics]
    return await console.page(
        request,
        "topics.html",
        section="topics",
        query=query,
        with_internal=with_internal,
        page=page,
        summaries=summaries,
        problems=known.problems,
        is_first="after" not in request.query_params,
    )


async def show(console: Console, request: Request) -> Response:
    broker = console.broker
    topic = broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return await console.not_found(request, f"topic {request.path_params['topic']}")
    first = min(max(0, integer(request, "first", 0)), len(topic.partitions) - 1)
    last = min(first + PARTITIONS_A_PAGE, len(topic.partitions))
    known = await figures(broker, [(topic, range(len(topic.partitions)))])
    visitor = console.visitor(request)
    may_see_settings = visitor.may_on_topic("DESCRIBE_CONFIGS", topic.name)
    marked = await throttled(broker, topic, range(first, last)) if may_see_settings else {}
    rows = [
        PartitionRow(
            index,
            topic.partitions[index],
            known.of.get((topic.topic_id, index)),
            held_partition(broker, topic, index),
            marked.get(index),
        )
        for index in range(first, last)
    ]
    configs = list(describe_topic(topic.configs, broker.config)) if may_see_settings else []
    return await console.page(
        request,
        "topic.html",
        section="topics",
        topic=topic,
        summary=await summarize(broker, topic, known, console.history.topic_rates.get(topic.topic_id, 0.0)),
        problems=known.problems,
        rows=rows,
        rates=rates(broker, marked.values()) if visitor.may_on_cluster(AclOperation.DESCRIBE_CONFIGS) else [],
        first=first,
        next_first=last if last < len(topic.partitions) else None,
        previous_first=max(0, first - PARTITIONS_A_PAGE) if first else None,
        changed=[config for config in configs if config.source is not ConfigSource.DEFAULT],
        unchanged=[config for config in configs if config.source is ConfigSource.DEFAULT],
        picture=await _picture(rows),
        columns=layout.COLUMNS,
        node_id=broker.node_id,
    )


async def _picture(rows: list[PartitionRow]) -> layout.Layout | None:
    logs = [row.held.log for row in rows if row.held is not None]
    # Beyond ten thousand partitions a topic has several stores; the picture is that of the first one on the page.
    logs = [log for log in logs if log.store is logs[0].store]
    return await layout.picture(logs) if logs else None


def partition_of(topic: TopicImage, number: int) -> int | None:
    """The number if the topic has such a partition."""
    return number if 0 <= number < len(topic.partitions) else None
