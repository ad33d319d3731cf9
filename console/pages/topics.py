"""The list of topics, and one topic with its partitions, settings and the picture of where its bytes lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console import layout
from ottla.console.parameters import integer, text
from ottla.console.selection import Ranking, select
from ottla.console.throttles import rates, throttled
from ottla.console.tiers import tiers
from ottla.console.topics import figures, held_partition, summarize
from ottla.metadata.acls import AclOperation
from ottla.replica.partition import Role
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.description import ConfigSource, describe_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.throttles import ThrottledReplicas
    from ottla.console.topics import Figures, PartitionFigures, TopicSummary
    from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
    from ottla.replica.partition import Partition

TOPICS_A_PAGE: Final = 100
PARTITIONS_A_PAGE: Final = 100
MAX_MEASURED: Final = 20_000
"""How many partitions are looked at to sort topics by their records or bytes: some 100 ms of work."""


class PartitionRow(NamedTuple):
    """A partition as the cluster knows it, with its figures if they are known, and what this node holds of it."""

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

    growth = console.history.topic_rates
    ranking = Ranking.of(request, ("partitions", "records", "size_bytes", "rate"))
    value, too_many = await _value(console, image, ranking, matches)
    if value is None:
        ranking = ranking._replace(column=None)
    page = await select(
        image.topics,
        matches=matches,
        after=request.query_params.get("after"),
        limit=TOPICS_A_PAGE,
        value=value,
        descending=ranking.descending,
        beyond=ranking.beyond,
    )
    topics = [image.topics[name] for name in page.names]
    known = await figures(broker, ((topic, range(len(topic.partitions))) for topic in topics))
    summaries = [await summarize(broker, topic, known, growth.get(topic.topic_id, 0.0)) for topic in topics]
    return await console.page(
        request,
        "topics.html",
        section="topics",
        query=query,
        with_internal=with_internal,
        page=page,
        ranking=ranking,
        summaries=summaries,
        problems=[*too_many, *known.problems],
        is_first="after" not in request.query_params,
    )


async def _value(
    console: Console, image: MetadataImage, ranking: Ranking, matches: Callable[[str], bool]
) -> tuple[Callable[[str], float] | None, list[str]]:
    """The value to sort topics by (None: their names), and why they are not sorted as requested."""
    topics, growth = image.topics, console.history.topic_rates
    if ranking.column is None:
        return None, []
    if ranking.column == "partitions":
        return lambda name: len(topics[name].partitions), []
    if ranking.column == "rate":
        return lambda name: growth.get(topics[name].topic_id, 0.0), []
    measured = await _measured(console, image, matches)
    if measured is None:
        return None, [f"Not sorted: these topics have more than {MAX_MEASURED:,} partitions. Search for fewer."]
    column = ranking.column
    return lambda name: getattr(measured[name], column) if name in measured else 0, []


async def _measured(
    console: Console, image: MetadataImage, matches: Callable[[str], bool]
) -> dict[str, TopicSummary] | None:
    """The records and bytes of all topics that match; None if they have too many partitions."""
    found: list[TopicImage] = []
    partitions = 0
    slices = TimeSlice()
    for name, topic in image.topics.items():
        if slices.is_over:
            await slices.maybe_yield()
        if matches(name):
            found.append(topic)
            partitions += len(topic.partitions)
            if partitions > MAX_MEASURED:
                return None
    known = await figures(console.broker, ((topic, range(len(topic.partitions))) for topic in found))
    return {topic.name: await summarize(console.broker, topic, known, 0.0) for topic in found}


async def show(console: Console, request: Request) -> Response:
    broker = console.broker
    topic = broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return await console.not_found(request, f"topic {request.path_params['topic']}")
    known = await figures(broker, [(topic, range(len(topic.partitions)))])
    ranking = Ranking.of(request, ("records", "size"))
    after = integer(request, "after", -1)
    page = await select(
        range(len(topic.partitions)),
        matches=lambda _: True,
        after=after if after >= 0 else None,
        limit=PARTITIONS_A_PAGE,
        value=_value_of_partition(ranking, topic, known),
        descending=ranking.descending,
        beyond=ranking.beyond,
    )
    visitor = console.visitor(request)
    may_see_settings = visitor.may_on_topic("DESCRIBE_CONFIGS", topic.name)
    marked = await throttled(broker, topic, frozenset(page.names)) if may_see_settings else {}
    rows = [
        PartitionRow(
            index,
            topic.partitions[index],
            known.of.get((topic.topic_id, index)),
            held_partition(broker, topic, index),
            marked.get(index),
        )
        for index in page.names
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
        page=page,
        ranking=ranking,
        is_first=after < 0,
        changed=[config for config in configs if config.source is not ConfigSource.DEFAULT],
        unchanged=[config for config in configs if config.source is ConfigSource.DEFAULT],
        picture=await _picture(rows),
        tiers=await tiers([row.held for row in rows if row.held is not None]),
        columns=layout.COLUMNS,
        node_id=broker.node_id,
    )


def _value_of_partition(ranking: Ranking, topic: TopicImage, known: Figures) -> Callable[[int], float] | None:
    if ranking.column is None:
        return None

    def value(index: int) -> float:
        found = known.of.get((topic.topic_id, index))
        if found is None:
            return -1
        return found.records if ranking.column == "records" else found.size_bytes

    return value


async def _picture(rows: list[PartitionRow]) -> layout.Layout | None:
    logs = [row.held.log for row in rows if row.held is not None]
    # Beyond ten thousand partitions a topic has several stores; the picture is that of the first one on the page.
    logs = [log for log in logs if log.store is logs[0].store]
    return await layout.picture(logs) if logs else None


def partition_of(topic: TopicImage, number: int) -> int | None:
    """The number if the topic has such a partition."""
    return number if 0 <= number < len(topic.partitions) else None
