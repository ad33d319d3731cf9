"""`ottla acl`: who may do what, where the broker has an authorizer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.client.admin import acls
from ottla.client.admin.acls import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    OPERATIONS,
    PREFIXED,
    RESOURCE_HELP,
    AclTarget,
    AclTextError,
)
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.messages.access.create_acls import CreateAclsRequest
from ottla.kproto.messages.access.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.kproto.messages.access.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from ottla.metadata.acls import Acl

HAS_ACTIONS = True

T = TypeVar("T")
K = TypeVar("K", bound=IntEnum)


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The same for argparse, which shows what is wrong."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except AclTextError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


_operation = _argument(acls.operation)
_operations = _argument(acls.operations)
_resource = _argument(acls.target)


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    add = actions.add_parser("add", help="allow or deny a principal operations on resources")
    listing = actions.add_parser("list", help="list the entries, or those of a principal or for a resource")
    delete = actions.add_parser("delete", help="remove entries")
    explain = actions.add_parser("explain", help="say whether a principal may do something, and which rule decides")
    for action in (add, explain):
        action.add_argument("principal", type=acls.principal, help="a user, or type:name; User:* is everybody")
        of_which = "" if action is explain else "one or several, such as read,write: "
        parse = _operation if action is explain else _operations
        action.add_argument("operation", type=parse, help=of_which + ", ".join(OPERATIONS))
    for action in (listing, delete):
        action.add_argument("--principal", type=acls.principal, metavar="NAME", help="only those of this principal")
        action.add_argument(
            "--operation", type=_operation, default=ANY, metavar="NAME", help="only of this operation (default: any)"
        )
    for action in (add, explain):
        action.add_argument("resource", nargs="+" if action is add else None, type=_resource, help=RESOURCE_HELP)
    for action in (listing, delete):
        action.add_argument("resource", nargs="*", type=_resource, help=RESOURCE_HELP)
    add.add_argument("--deny", action="store_true", help="deny instead of allow")
    for action in (add, listing, delete, explain):
        only = "from this address or network" if action in (add, explain) else "only those for this address"
        action.add_argument("--host", metavar="ADDRESS", help=f"{only} (default: any)")
    listing.add_argument("--matching", action="store_true", help="also prefixes and wildcards that match the resource")
    options.add_json(listing)
    delete.add_argument("--all", action="store_true", help="every entry")
    for action, act in ((add, _add), (listing, _list), (delete, _delete), (explain, _explain)):
        options.add_bootstrap(action)
        action.set_defaults(act=act)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        return int(arguments.act(client, arguments) or 0)


def _add(client: Client, arguments: argparse.Namespace) -> None:
    creations = acls.creations(
        arguments.principal,
        arguments.operation,
        arguments.resource,
        host=arguments.host or "*",
        permission="deny" if arguments.deny else "allow",
    )
    for result in client.call_controller(CreateAclsRequest(creations=creations)).results:
        if result.error_code:
            raise BrokerError(result.error_code, result.error_message)


def _list(client: Client, arguments: argparse.Namespace) -> None:
    pattern = MATCH if arguments.matching else None
    found = [
        acl
        for it in arguments.resource or [None]
        for acl in _described(client, it, arguments.principal, arguments.host, arguments.operation, pattern)
    ]
    rows = [_row(acl) for acl in sorted(set(found))]
    head = ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "HOST")
    if arguments.json:
        print(json.dumps([dict(zip(map(str.lower, head), row, strict=True)) for row in rows], indent=2))
    else:
        options.print_table(head, rows)


def _delete(client: Client, arguments: argparse.Namespace) -> None:
    chosen = (arguments.resource, arguments.principal, arguments.host, arguments.operation != ANY)
    if any(chosen) is arguments.all:
        raise CommandError("say which entries: a resource, --principal, --operation, --host, or --all")
    filters = [
        DeleteAclsFilter(
            resource_type_filter=ANY if it is None else it.type,
            resource_name_filter=None if it is None else it.name,
            pattern_type_filter=ANY if it is None else it.pattern,
            principal_filter=arguments.principal,
            host_filter=arguments.host,
            operation=arguments.operation,
            permission_type=ANY,
        )
        for it in arguments.resource or [None]
    ]
    deleted = 0
    for result in client.call_controller(DeleteAclsRequest(filters=filters)).filter_results:
        if result.error_code:
            raise BrokerError(result.error_code, result.error_message)
        deleted += len(result.matching_acls)
    if not deleted:
        raise CommandError("there is no such entry; `ottla acl list` shows what there is")
    print(f"{deleted} deleted")


def _explain(client: Client, arguments: argparse.Namespace) -> int:
    """0 if it is allowed, 1 if not. Super users are named in the brokers' settings, which not everybody may read."""
    from ottla.metadata.acls import AclOperation, AclResource
    from ottla.security.authorizer import Authorizer

    authorizer = Authorizer(_super_users(client), allows_without_acl=_allows_without_acl(client))
    authorizer.replace(_described(client, None, None, None, ANY, None))
    resource = arguments.resource
    decision = authorizer.decide(
        arguments.principal,
        arguments.host or "*",
        AclOperation(arguments.operation),
        AclResource(resource.type),
        resource.name,
    )
    print(f"{'allowed' if decision.is_allowed else 'denied'}: {decision.rule}")
    return 0 if decision.is_allowed else 1


def _super_users(client: Client) -> list[str]:
    return [name.strip() for name in (_setting(client, "super.users") or "").split(";") if name.strip()]


def _allows_without_acl(client: Client) -> bool:
    return _setting(client, "allow.everyone.if.no.acl.found") == "true"


def _setting(client: Client, name: str) -> str | None:
    from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    broker = client.metadata([]).brokers[0].node_id
    asked = DescribeConfigsResource(resource_type=4, resource_name=str(broker), configuration_keys=[name])
    (result,) = client.broker(broker).call(DescribeConfigsRequest(resources=[asked])).results
    if result.error_code:
        raise BrokerError(result.error_code, result.error_message)
    return next((config.value for config in result.configs), None)


def _described(
    client: Client,
    resource: AclTarget | None,
    principal: str | None,
    host: str | None,
    operation: int,
    pattern: int | None,
) -> list[Acl]:
    from ottla.metadata.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource

    answer = client.call(
        DescribeAclsRequest(
            resource_type_filter=ANY if resource is None else resource.type,
            resource_name_filter=None if resource is None else resource.name,
            pattern_type_filter=pattern or (ANY if resource is None else resource.pattern),
            principal_filter=principal,
            host_filter=host,
            operation=operation,
            permission_type=ANY,
        )
    )
    if answer.error_code:
        raise BrokerError(answer.error_code, answer.error_message)
    return [
        Acl(
            _known(AclResource, it.resource_type),
            it.resource_name,
            _known(AclPattern, it.pattern_type),
            acl.principal,
            acl.host,
            _known(AclOperation, acl.operation),
            _known(AclPermission, acl.permission_type),
        )
        for it in answer.resources
        for acl in it.acls
    ]


def _known(kinds: type[K], number: int) -> K:
    """The enum member of a number from a broker. Raises CommandError if it is newer than this release."""
    try:
        return kinds(number)
    except ValueError:
        what = kinds.__name__.removeprefix("Acl").lower()
        raise CommandError(f"the broker has an entry whose {what} {number} this `ottla` does not know") from None


def _row(acl: Acl) -> tuple[str, str, str, str, str]:
    kind = acl.resource.name.lower().replace("_", "-")
    name = "" if acl.name == CLUSTER_NAME else f":{acl.name}{'*' if acl.pattern == PREFIXED else ''}"
    operation = acl.operation.name.lower().replace("_", "-")
    return acl.principal, acl.permission.name.lower(), operation, kind + name, acl.host
