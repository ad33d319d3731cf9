"""A page of a topic's messages, from several partitions.

A page continues where the last one ended (`at` names an offset for each partition). So late pages cost no more than
early ones, and no message is shown twice because others arrived meanwhile.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.console.messages.readable import Found, Readable, find_readable
from ottla.console.messages.reading import Budget, Message, scan, scan_back
from ottla.console.messages.search import Search, Start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.console.messages.reading import Keep
    from ottla.metadata.image import TopicImage
    from ottla.server.broker import Broker

MESSAGES_A_PAGE: Final = 50
MAX_PARTITIONS: Final = 32
"""How many partitions one page reads together; if a topic has more, the pages go from one such group to the next."""
_SEARCH_SECONDS: Final = 4.0
"""For how long a search that finds nothing in a group of partitions continues with the next groups."""


class Page(NamedTuple):
    """The messages of a page, where the next one continues (empty: nothing is left), and what it cost."""

    messages: list[Message]
    at: dict[int, int]
    scanned: int
    is_cut_short: bool


class Read(NamedTuple):
    """One answer: a page of a group of partitions, and where the next group begins, if there is one."""

    page: Page
    partitions: list[Readable]
    first: int
    following: int | None
    problem: str


async def read_page(broker: Broker, topic: TopicImage, search: Search, keep: Keep) -> Read:
    """The page of the first group of partitions in which something is found, or else that of the last group.

    Raises ReplicaError, StorageError, ProtocolError, NodeError or TimeError.
    """
    first = 0 if search.partition is not None else search.first
    ends_at = monotonic() + _SEARCH_SECONDS
    scanned = 0
    while True:
        partitions, following, problems = await readable_partitions(broker, topic, search.partition, first)
        page = await find(broker, partitions, search, keep)
        scanned += page.scanned
        is_over = following is None or not search.has_filter or monotonic() >= ends_at
        if is_over or page.messages or page.at or search.at:
            return Read(page._replace(scanned=scanned), partitions, first, following, " ".join(problems))
        assert following is not None
        first = following


async def readable_partitions(
    broker: Broker, topic: TopicImage, only: int | None, first: int = 0, limit: int = MAX_PARTITIONS
) -> Found:
    """The readable ones among the requested partitions: a single one, or a number of them starting at `first`."""
    wanted = range(first, len(topic.partitions)) if only is None else (only,)
    return await find_readable(broker, topic, wanted, limit)


async def find(broker: Broker, partitions: list[Readable], search: Search, keep: Keep) -> Page:
    """The page that a search asks for. Raises ReplicaError, StorageError, ProtocolError, NodeError or TimeError."""
    time_ms = search.begins_at_ms(broker.clock.time_ms())
    scans: dict[int, Any] = {}
    budget = Budget()
    scanned = 0
    for number, partition in enumerate(partitions):
        # The remaining room is shared by the remaining partitions.
        share = Budget(
            records=max(1, (budget.records - scanned) // (len(partitions) - number)),
            size_bytes=budget.size_bytes // len(partitions),
            seconds=2.0 / len(partitions) + 0.05,
        )
        position = search.at.get(partition.index)
        if position is None:
            position = await _first_position(partition, search, time_ms)
        if search.is_backward:
            scans[partition.index] = await scan_back(
                partition, position, budget=share, keep=keep, limit=MESSAGES_A_PAGE
            )
        else:
            end = partition.high_watermark
            position = max(position, partition.log_start_offset)
            scans[partition.index] = await scan(
                partition, position, end, budget=share, keep=keep, limit=MESSAGES_A_PAGE
            )
        scanned += share.scanned
    return _merge(partitions, scans, scanned, is_backward=search.is_backward)


def _merge(partitions: list[Readable], scans: Mapping[int, Any], scanned: int, *, is_backward: bool) -> Page:
    """The first messages of all partitions together in order of time, without breaking the order of offsets."""
    queues = {index: list(reversed(found.messages)) for index, found in scans.items()}
    taken: list[Message] = []
    at = {index: found.next_offset for index, found in scans.items()}
    while len(taken) < MESSAGES_A_PAGE and any(queues.values()):
        heads = [queue[-1] for queue in queues.values() if queue]
        chosen = max(heads, key=_order) if is_backward else min(heads, key=_order)
        taken.append(queues[chosen.partition].pop())
    for index, queue in queues.items():
        if queue:
            # What was read but has no room is where the next page begins.
            at[index] = queue[-1].offset + 1 if is_backward else queue[-1].offset
    is_more = any(
        at[partition.index] > partition.log_start_offset
        if is_backward
        else at[partition.index] < partition.high_watermark
        for partition in partitions
    )
    return Page(taken, at if is_more else {}, scanned, is_cut_short=is_more and len(taken) < MESSAGES_A_PAGE)


def _order(message: Message) -> tuple[int, int, int]:
    return message.order


async def _first_position(partition: Readable, search: Search, time_ms: int | None) -> int:
    if search.start is Start.NEWEST:
        return partition.high_watermark
    if search.start is Start.OFFSET:
        return min(max(search.offset, partition.log_start_offset), partition.high_watermark)
    if time_ms is None:
        return partition.log_start_offset
    found = await partition.offset_at(time_ms)
    return partition.high_watermark if found is None else found
