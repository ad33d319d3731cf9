"""`ottla acl`: who may do what, where the broker has an authorizer."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.kproto.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.kproto.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from ottla.server.metadata.acls import Acl

HAS_ACTIONS = True

_RESOURCES: Final = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
_OPERATIONS: Final = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster-action": 9,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
    "two-phase-commit": 15,
}
_PERMISSIONS: Final = {"deny": 2, "allow": 3}
_LITERAL, _PREFIXED, _ANY, _MATCH = 3, 4, 1, 2
_CLUSTER_NAME: Final = "kafka-cluster"


class _Resource(NamedTuple):
    type: int
    name: str
    pattern: int


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    add = actions.add_parser("add", help="allow, or deny, a principal operations on resources")
    listing = actions.add_parser("list", help="list the entries, or those of a principal or for a resource")
    delete = actions.add_parser("delete", help="remove entries")
    explain = actions.add_parser("explain", help="say whether a principal may do something, and by which rule")
    for action in (add, explain):
        action.add_argument("principal", type=_principal, help="a user, or type:name; User:* is anybody")
        action.add_argument("operation", type=_operation, help=", ".join(_OPERATIONS))
    for action in (listing, delete):
        action.add_argument("--principal", type=_principal, metavar="NAME", help="only those of this principal")
        action.add_argument("--operation", type=_operation, default=_ANY, metavar="NAME", help="only of this operation")
    for action in (add, explain):
        action.add_argument("resource", nargs="+" if action is add else None, type=_resource, help=_RESOURCE_HELP)
    for action in (listing, delete):
        action.add_argument("resource", nargs="*", type=_resource, help=_RESOURCE_HELP)
    add.add_argument("--deny", action="store_true", help="deny instead of allow")
    for action in (add, listing, delete, explain):
        only = "from this address" if action in (add, explain) else "only those for this address"
        action.add_argument("--host", metavar="ADDRESS", help=f"{only} (default: any)")
    listing.add_argument("--matching", action="store_true", help="also prefixes and wildcards that fit the resource")
    options.add_json(listing)
    delete.add_argument("--all", action="store_true", help="every entry there is")
    for action, act in ((add, _add), (listing, _list), (delete, _delete), (explain, _explain)):
        options.add_bootstrap(action)
        action.set_defaults(act=act)


_RESOURCE_HELP: Final = "topic:NAME, topic:PREFIX*, topic:*, group:…, transactional-id:…, or cluster"


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        return int(arguments.act(client, arguments) or 0)


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _operation(text: str) -> int:
    number = _OPERATIONS.get(text.lower().replace("_", "-"))
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no operation: write one of {', '.join(_OPERATIONS)}")
    return number


def _resource(text: str) -> _Resource:
    kind, colon, name = text.partition(":")
    number = _RESOURCES.get(kind.lower().replace("_", "-"))
    if number is None or (bool(colon and name) is (number == _RESOURCES["cluster"])):
        raise argparse.ArgumentTypeError(f"{text!r} is no resource: write {_RESOURCE_HELP}")
    if number == _RESOURCES["cluster"]:
        return _Resource(number, _CLUSTER_NAME, _LITERAL)
    if name.endswith("*") and name != "*":
        return _Resource(number, name[:-1], _PREFIXED)
    return _Resource(number, name, _LITERAL)


def _add(client: Client, arguments: argparse.Namespace) -> None:
    creations = [
        AclCreation(
            resource_type=it.type,
            resource_name=it.name,
            resource_pattern_type=it.pattern,
            principal=arguments.principal,
            host=arguments.host or "*",
            operation=arguments.operation,
            permission_type=_PERMISSIONS["deny" if arguments.deny else "allow"],
        )
        for it in arguments.resource
    ]
    for result in client.call_controller(CreateAclsRequest(creations=creations)).results:
        if result.error_code:
            raise BrokerError(result.error_code, result.error_message)


def _list(client: Client, arguments: argparse.Namespace) -> None:
    pattern = _MATCH if arguments.matching else None
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
    chosen = (arguments.resource, arguments.principal, arguments.host, arguments.operation != _ANY)
    if any(chosen) is arguments.all:
        raise CommandError("say which entries: a resource, --principal, --operation, --host, or --all")
    filters = [
        DeleteAclsFilter(
            resource_type_filter=_ANY if it is None else it.type,
            resource_name_filter=None if it is None else it.name,
            pattern_type_filter=_ANY if it is None else it.pattern,
            principal_filter=arguments.principal,
            host_filter=arguments.host,
            operation=arguments.operation,
            permission_type=_ANY,
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
    """0 if it is allowed, 1 if not. Super users are in the brokers' settings, which not everybody may read."""
    from ottla.server.metadata.acls import AclOperation, AclResource
    from ottla.server.security.authorizer import Authorizer

    acls = _described(client, None, None, None, _ANY, None)
    authorizer = Authorizer(_super_users(client), allows_without_acl=_allows_without_acl(client))
    authorizer.replace(acls)
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
    from ottla.kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    broker = client.metadata([]).brokers[0].node_id
    asked = DescribeConfigsResource(resource_type=4, resource_name=str(broker), configuration_keys=[name])
    (result,) = client.broker(broker).call(DescribeConfigsRequest(resources=[asked])).results
    if result.error_code:
        raise BrokerError(result.error_code, result.error_message)
    return next((config.value for config in result.configs), None)


def _described(
    client: Client,
    resource: _Resource | None,
    principal: str | None,
    host: str | None,
    operation: int,
    pattern: int | None,
) -> list[Acl]:
    from ottla.server.metadata.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource

    answer = client.call(
        DescribeAclsRequest(
            resource_type_filter=_ANY if resource is None else resource.type,
            resource_name_filter=None if resource is None else resource.name,
            pattern_type_filter=pattern or (_ANY if resource is None else resource.pattern),
            principal_filter=principal,
            host_filter=host,
            operation=operation,
            permission_type=_ANY,
        )
    )
    if answer.error_code:
        raise BrokerError(answer.error_code, answer.error_message)
    return [
        Acl(
            AclResource(it.resource_type),
            it.resource_name,
            AclPattern(it.pattern_type),
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
        )
        for it in answer.resources
        for acl in it.acls
    ]


def _row(acl: Acl) -> tuple[str, str, str, str, str]:
    kind = acl.resource.name.lower().replace("_", "-")
    name = "" if acl.name == _CLUSTER_NAME else f":{acl.name}{'*' if acl.pattern == _PREFIXED else ''}"
    operation = acl.operation.name.lower().replace("_", "-")
    return acl.principal, acl.permission.name.lower(), operation, kind + name, acl.host
