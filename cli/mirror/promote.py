"""`ottla mirror promote`: let clients write here from now on.

It takes these steps, in an order that lets an interrupted command be called again:

1. Nothing may be left to copy, and the source must be quiet: whatever was written there later would be lost. The
   same goes for markers of transactions that the source has decided about.
2. The topics stop being mirrors: in a new leader epoch they get nothing from the source any more, and nothing from
   clients yet.
3. Transactions that are open in them are ended, because nobody else ever would: their coordinator is at the source.
   They are committed if the source has committed them in the meantime, and otherwise aborted.
4. The topics become writable, in one more leader epoch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from ottla.cli import CommandError, options
from ottla.cli.cluster.open_transactions import end_open_transactions
from ottla.cli.mirror.groups import differing_groups
from ottla.cli.mirror.state import (
    CLIENT_PROPERTIES,
    GROUPS,
    SERVERS,
    TOPICS,
    add_source,
    alter_brokers,
    alter_topics,
    broker_settings,
    connected_source,
    ends_of,
    lags_of,
    mirrored_topics,
    visible_topics,
)
from ottla.cli.mirror.transactions import committed_there, undecided_there, wait_for_markers
from ottla.client.client import Client
from ottla.client.offsets import TopicPartition
from ottla.server.mirror.names import NamePattern
from ottla.settings.mirrored import Mirrored, Mirroring

if TYPE_CHECKING:
    from ottla.kproto.messages.topics.metadata import MetadataResponseTopic

_QUIET_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.1
_NAMED: Final = 10


def add_promote(actions: Any) -> None:
    parser: argparse.ArgumentParser = actions.add_parser(
        "promote", help="make mirrored topics writable: clients move here"
    )
    add_source(parser, required=False)
    parser.add_argument(
        "--topics",
        action="append",
        default=[],
        metavar="NAMES",
        help="only these, as `start` takes them (default: all)",
    )
    parser.add_argument(
        "--wait",
        type=options.seconds,
        default=30,
        metavar="SECONDS",
        help="how long to wait until everything is copied (default: 30)",
    )
    parser.add_argument(
        "--source-is-lost", action="store_true", help="do not ask the source; give up what has not been copied yet"
    )
    parser.set_defaults(act=_promote)


def _promote(here: Client, arguments: argparse.Namespace) -> int:
    names = NamePattern([name for text in arguments.topics for name in text.split(",") if name])
    local = {it.name or "": it for it in visible_topics(here)}
    mirrored = {name: it for name, it in mirrored_topics(here, local).items() if names.matches(name)}
    if not mirrored:
        raise CommandError("no topic here is a mirror: there is nothing to promote")
    source = nullcontext() if arguments.source_is_lost else connected_source(here, arguments)
    with source as there:
        following = {name for name, it in mirrored.items() if it.mirroring is Mirroring.FOLLOWING}
        if there is not None and following:
            _wait_until_copied(here, there, {name: mirrored[name] for name in following}, arguments.wait)
            while wait_for_markers(here, there, following, arguments.wait):
                _wait_until_copied(here, there, {name: mirrored[name] for name in following}, arguments.wait)
            _wait_for_groups(here, there, following, arguments.wait)
        undecided = set() if there is None else undecided_there(here, there, mirrored, arguments.timeout)
        ending = {name: str(it._replace(mirroring=Mirroring.ENDING)) for name, it in mirrored.items()}
        alter_topics(here, ending)
        _wait_until_known(here, ending, arguments.timeout)
        left = {} if there is None else _lags(here, there, mirrored)
        committed = set() if there is None else committed_there(here, there, mirrored, arguments.timeout, undecided)
    aborted, _ = end_open_transactions(here, mirrored, arguments.timeout, committed)
    alter_topics(here, dict.fromkeys(mirrored))
    if not arguments.topics and broker_settings(here).get(SERVERS):
        alter_brokers(here, dict.fromkeys((SERVERS, TOPICS, GROUPS, CLIENT_PROPERTIES)))
    _say_what_to_do(here, len(mirrored), aborted)
    if left:
        print(f"the source received records while its topics were being promoted, and they are not here: {_some(left)}")
        return 1
    return 0


def _wait_until_copied(here: Client, there: Client, mirrored: Mapping[str, Mirrored], seconds: float) -> None:
    """Return when nothing is left to copy and the source has been quiet for a while. Raises CommandError if that takes
    too long.
    """
    deadline = time.monotonic() + seconds
    before: Mapping[TopicPartition, int] | None = None
    while True:
        gone = _without_source(there, mirrored)
        if gone:
            raise CommandError(
                f"the source has no such topic any more: {', '.join(sorted(gone)[:_NAMED])}; "
                "--topics leaves topics out, and --source-is-lost promotes them as they are"
            )
        ends = ends_of(there, _partitions(there, mirrored))
        lags = _lags(here, there, mirrored)
        if not lags and ends == before:
            return
        if time.monotonic() > deadline:
            if lags:
                raise CommandError(f"not everything is copied yet: {_some(lags)}; wait, or see `ottla mirror status`")
            raise CommandError("the source is still receiving records: stop its producers first")
        before = ends
        time.sleep(_QUIET_SECONDS)


def _wait_for_groups(here: Client, there: Client, topics: Collection[str], seconds: float) -> None:
    """Return when what groups have committed is the same on both sides. If it still differs at the deadline, that is
    only reported: for a group that has members here, or is not mirrored, it never will be the same.
    """
    names = NamePattern((broker_settings(here).get(GROUPS) or "*").split(","))
    deadline = time.monotonic() + seconds
    while differing := differing_groups(here, there, topics, names):
        if time.monotonic() > deadline:
            print(f"these groups have committed something else at the source: {', '.join(differing[:_NAMED])}")
            return
        time.sleep(_QUIET_SECONDS)


def _wait_until_known(here: Client, ending: Mapping[str, str], seconds: float) -> None:
    """Return when every broker knows that the topics are no mirrors any more, so that none copies anything."""
    deadline = time.monotonic() + seconds
    for broker in here.metadata([]).brokers:
        while any(it.mirroring is Mirroring.FOLLOWING for it in mirrored_topics(here, ending, broker.node_id).values()):
            if time.monotonic() > deadline:
                raise CommandError(
                    f"broker {broker.node_id} does not follow the metadata: call this again when it does"
                )
            time.sleep(_POLL_SECONDS)


def _partitions(client: Client, topics: Collection[str]) -> list[TopicPartition]:
    return [
        TopicPartition(it.name or "", part.partition_index)
        for it in client.metadata(sorted(topics)).topics
        for part in it.partitions
    ]


def _followed(there: Client, mirrored: Mapping[str, Mirrored]) -> Iterator[MetadataResponseTopic]:
    """The topics of the source that are mirrored, as they are there now."""
    for topic in visible_topics(there):
        known = mirrored.get(topic.name or "")
        if known is not None and known.source_id == topic.topic_id:
            yield topic


def _without_source(there: Client, mirrored: Mapping[str, Mirrored]) -> set[str]:
    return mirrored.keys() - {topic.name for topic in _followed(there, mirrored)}


def _lags(here: Client, there: Client, mirrored: Mapping[str, Mirrored]) -> dict[TopicPartition, int]:
    lags, _ = lags_of(here, there, list(_followed(there, mirrored)))
    return {it: lag for it, lag in lags.items() if lag}


def _some(lags: Mapping[TopicPartition, int]) -> str:
    named = ", ".join(f"{it} lacks {lag:,}" for it, lag in sorted(lags.items())[:_NAMED])
    return named + (f", and {len(lags) - _NAMED} more" if len(lags) > _NAMED else "")


def _say_what_to_do(here: Client, topics: int, aborted: int) -> None:
    brokers = ",".join(f"{it.host}:{it.port}" for it in here.metadata([]).brokers)
    print(f"writable here now: {options.counted(topics, 'topic')}")
    if aborted:
        print(f"aborted, because they were open in them: {options.counted(aborted, 'transaction')}")
    print(f"Move the clients:\n  bootstrap.servers={brokers}")
    print("  and how they log in here: security.protocol, sasl.* and ssl.*, where this cluster asks for it")
    print("  producers may be started; transactional ids and groups keep their names")
    print("  consumers continue where their groups were; client.id quotas, users and ACLs were not copied")
