"""`ottla group`: list, describe, seek and delete groups, of the classic and of the consumer protocol."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.cli import CommandError, options, where
from ottla.cli.connection import connected
from ottla.cli.groups.describe import describe, progress_of
from ottla.cli.groups.seek import seek
from ottla.client.admin.group_state import Coordinator, find_group
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest

HAS_ACTIONS = True


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")

    listing = actions.add_parser("list", help="list groups")
    listing.add_argument("--state", action="append", default=[], help="only groups in this state; may be repeated")
    listing.add_argument(
        "--type",
        action="append",
        default=[],
        choices=["classic", "consumer", "share", "streams"],
        help="only this type",
    )
    listing.add_argument("--lag", action="store_true", help="also how far each group is behind, in all its partitions")
    options.add_json(listing)
    listing.set_defaults(act=_list)

    describing = actions.add_parser("describe", help="show offsets, lag, members and their assignment")
    describing.add_argument("groups", nargs="+", metavar="group")
    describing.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="where a broker's --http is, or that of all nodes: also shows what each member of a share group holds of "
        "the partitions that are led there",
    )
    options.add_json(describing)
    describing.set_defaults(act=describe)

    seeking = actions.add_parser("seek", help="move the offsets of a group that has no members")
    where.allow_minus(seeking)
    seeking.add_argument("group")
    seeking.add_argument(
        "partitions",
        nargs="*",
        metavar="topic[:partition,…]",
        help="default: all partitions for which the group has offsets",
    )
    seeking.add_argument(
        "--to",
        required=True,
        metavar="WHERE",
        help=where.HELP,
    )
    seeking.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    options.add_json(seeking)
    seeking.set_defaults(act=seek)

    delete = actions.add_parser("delete", help="delete groups and all their offsets")
    delete.add_argument("groups", nargs="+", metavar="group")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if a group does not exist")
    delete.set_defaults(act=_delete)

    for action in (listing, describing, seeking, delete):
        options.add_bootstrap(action)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        arguments.act(client, arguments)
    return 0


# list


def _list(client: Client, arguments: argparse.Namespace) -> None:
    request = ListGroupsRequest(states_filter=arguments.state, types_filter=arguments.type)
    listed: list[Any] = []
    for broker in client.metadata([]).brokers:
        answer = client.broker(broker.node_id).call(request)
        if answer.error_code:
            raise BrokerError(answer.error_code, what=f"the groups of broker {broker.node_id}")
        listed += answer.groups
    listed.sort(key=lambda group: group.group_id)
    lags = _lags(client, arguments, [group.group_id for group in listed]) if arguments.lag else {}
    if arguments.json:
        print(json.dumps([_as_json(group, lags) for group in listed], indent=2))
        return
    options.print_table(
        ("GROUP", "TYPE", "STATE", "PROTOCOL", *(["LAG"] if arguments.lag else ())),
        (
            (
                g.group_id,
                g.group_type or "-",
                g.group_state,
                g.protocol_type or "-",
                *([lags[g.group_id]] if lags else ()),
            )
            for g in listed
        ),
    )


def _lags(client: Client, arguments: argparse.Namespace, group_ids: list[str]) -> dict[str, int | str]:
    """How far each group is behind; a group that has ended in the meantime has none."""
    coordinator = Coordinator(client, arguments.timeout)
    found = ((group_id, find_group(coordinator, group_id)) for group_id in group_ids)
    return {
        group_id: "-" if group is None else sum(each.lag or 0 for each in progress_of(client, coordinator, group))
        for group_id, group in found
    }


def _as_json(group: Any, lags: Mapping[str, int | str]) -> dict[str, Any]:
    shown = {name: getattr(group, field) for field, name in _JSON_NAMES.items()}
    lag = lags.get(group.group_id)
    return shown | ({"lag": lag if isinstance(lag, int) else None} if lags else {})


_JSON_NAMES: Final = {
    "group_id": "group",
    "group_type": "type",
    "group_state": "state",
    "protocol_type": "protocol",
}


# delete


def _delete(client: Client, arguments: argparse.Namespace) -> None:
    coordinator = Coordinator(client, arguments.timeout)
    failures: list[str] = []
    for group_id in arguments.groups:
        request = DeleteGroupsRequest(groups_names=[group_id])
        answer = coordinator.call(group_id, request, lambda answer: int(answer.results[0].error_code))
        code = answer.results[0].error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND and arguments.if_exists:
            continue
        if code == ErrorCode.NON_EMPTY_GROUP:
            failures.append(f"group {group_id} has members: stop its consumers first")
        elif code == ErrorCode.GROUP_ID_NOT_FOUND:
            failures.append(f"there is no group {group_id!r}: see `ottla group list`")
        elif code:
            failures.append(str(BrokerError(code, what=f"group {group_id}")))
    if failures:
        raise CommandError("; ".join(failures))
