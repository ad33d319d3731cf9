"""The list of groups, and one group with its members, their assignments and their lag."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.admin.group_state import SHARE
from ottla.console import charts, history
from ottla.console.groups import describe, list_groups
from ottla.console.lag import committed, partition_lags
from ottla.console.nodes import NodeError
from ottla.console.parameters import text
from ottla.console.selection import Ranking, select
from ottla.console.shares import share_lags
from ottla.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.server.share.held import held_by_member, in_flight

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.charts import Sparkline
    from ottla.console.console import Console
    from ottla.coordinator.group.listing import GroupListing

GROUPS_A_PAGE: Final = 100
MAX_LAGS: Final = 1_000
MAX_MEMBERS: Final = 500


class GroupRow(NamedTuple):
    listing: GroupListing
    lag: float | None
    curve: Sparkline | None


async def show_all(console: Console, request: Request) -> Response:
    query = text(request, "q")
    wanted = query.lower()
    visitor = console.visitor(request)
    listings, problems = await list_groups(console.broker)
    ranking = Ranking.of(request, ("lag",))
    lags = {group_id: curve.last or 0.0 for group_id, curve in console.history.lags.items()}
    page = await select(
        listings,
        matches=lambda group_id: (
            wanted in group_id.lower() and visitor.may(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        ),
        after=request.query_params.get("after"),
        limit=GROUPS_A_PAGE,
        value=None if ranking.column is None else lambda group_id: lags.get(group_id, -1),
        descending=ranking.descending,
        beyond=ranking.beyond,
    )
    rows = []
    for group_id in page.names:
        curve = console.history.lags.get(group_id)
        values = curve.values if curve is not None else ()
        rows.append(
            GroupRow(
                listings[group_id], curve.last if curve is not None else None, charts.sparkline(values, history.LENGTH)
            )
        )
    return await console.page(
        request,
        "groups.html",
        section="groups",
        query=query,
        page=page,
        ranking=ranking,
        rows=rows,
        problems=problems,
        is_first="after" not in request.query_params,
    )


async def show(console: Console, request: Request) -> Response:
    group_id = text(request, "id")
    try:
        group = await describe(console.broker, group_id)
        if group.protocol == SHARE:
            lags, hidden = await share_lags(console.broker, group_id, MAX_LAGS)
        else:
            offsets, hidden = await committed(console.broker, group_id, MAX_LAGS)
            lags = await partition_lags(console.broker, offsets)
    except GroupIdNotFoundError:
        return await console.not_found(request, f"group {group_id}")
    except (CoordinatorError, NodeError) as error:
        return await console.not_found(request, f"answer for group {group_id} yet: {error}")
    visitor = console.visitor(request)
    may_describe = cache(lambda topic: visitor.may_on_topic("DESCRIBE", topic))
    group = group.seen_by(may_describe)
    flights = await in_flight(console.broker.share.made, group_id) if group.protocol == SHARE else None
    lags = [each for each in lags if may_describe(each.topic)]
    ranking = Ranking.of(request, ("lag",))
    known = [each.lag for each in lags if each.lag is not None]
    ordered = await select(
        range(len(lags)),
        matches=lambda _: True,
        after=None,
        limit=len(lags),
        value=None if ranking.column is None else lambda place: _or_less(lags[place].lag),
        descending=ranking.descending,
    )
    letters = None if flights is None else _dead_letters(console, group_id)
    curve = console.history.lags.get(group_id)
    return await console.page(
        request,
        "group.html",
        section="groups",
        group=group,
        members=group.members[:MAX_MEMBERS],
        lags=[lags[place] for place in ordered.names],
        ranking=ranking,
        hidden_lags=hidden,
        owners=group.owners(),
        in_flight=None if flights is None else {(each.topic, each.partition): each for each in flights},
        held=None if flights is None else held_by_member(flights),
        dead_letters=letters if letters is not None and may_describe(letters.topic) else None,
        total_lag=sum(known) if known else None,
        highest_lag=max(known, default=0),
        curve=charts.sparkline(curve.values, history.LENGTH) if curve is not None else None,
        minutes=round(history.LENGTH * history.INTERVAL_SECONDS / 60),
    )


class _DeadLetters(NamedTuple):
    """The dead-letter topic of a share group, and how many letters this node has written."""

    topic: str
    written: int


def _dead_letters(console: Console, group_id: str) -> _DeadLetters | None:
    """None if the group has no dead-letter queue."""
    broker = console.broker
    configs = broker.metadata.resource_configs(ConfigResource(ResourceType.GROUP, group_id))
    topic = broker.config.group_config(configs).errors_deadletterqueue_topic_name
    counted = None if broker.share.made is None else broker.share.made.dead_letters.counters.get(group_id)
    return _DeadLetters(topic, 0 if counted is None else counted.records) if topic else None


def _or_less(lag: int | None) -> int:
    """A lag to sort by: an unknown one sorts below zero."""
    return -1 if lag is None else lag
