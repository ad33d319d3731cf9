"""`ottla quota`: what users, clients and addresses may use."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.cli.setting_names import did_you_mean
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.messages.configs.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.kproto.messages.configs.describe_client_quotas import DescribeClientQuotasRequest

HAS_ACTIONS = True

_ENTITIES: Final = {"user": "user", "client": "client-id", "ip": "ip"}
_DEFAULT: Final = "(default)"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    listing = actions.add_parser("list", help="list every quota")
    options.add_json(listing)
    listing.set_defaults(act=_list)
    change = actions.add_parser(
        "set", help="give a user, a client id, both together, or an address a quota, such as producer_byte_rate=1MiB"
    )
    change.add_argument("quotas", nargs="+", type=_name_and_number, metavar="quota=number")
    unset = actions.add_parser("unset", help="remove quotas")
    unset.add_argument("quotas", nargs="+", type=lambda name: (name, None), metavar="quota")
    for action in (change, unset):
        for name, entity in _ENTITIES.items():
            action.add_argument(f"--{name}", metavar="NAME", help=f"the {entity} that it applies to")
            action.add_argument(
                f"--default-{name}", action="store_true", help=f"for every {entity} that has no quota of its own"
            )
        action.set_defaults(act=_alter)
    for action in (listing, change, unset):
        options.add_bootstrap(action)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        arguments.act(client, arguments)
    return 0


def _name_and_number(text: str) -> tuple[str, float]:
    name, value = options.setting(text)
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number") from None


def _list(client: Client, arguments: argparse.Namespace) -> None:
    answer = client.call(DescribeClientQuotasRequest(components=[], strict=False))
    if answer.error_code:
        raise BrokerError(answer.error_code, answer.error_message)
    rows = sorted((_shown(entry.entity), value.key, value.value) for entry in answer.entries for value in entry.values)
    if arguments.json:
        listed: list[dict[str, Any]] = [
            {
                "entity": {part.entity_type: part.entity_name for part in entry.entity},
                "quotas": {value.key: value.value for value in entry.values},
            }
            for entry in answer.entries
        ]
        print(json.dumps(listed, indent=2))
        return
    options.print_table(
        ("OF", "QUOTA", "VALUE"), ((entity, key, options.plain_number(value)) for entity, key, value in rows)
    )


def _shown(entity: Any) -> str:
    return ", ".join(f"{part.entity_type} {part.entity_name or _DEFAULT}" for part in entity)


def _alter(client: Client, arguments: argparse.Namespace) -> None:
    entity = []
    for name, type_ in _ENTITIES.items():
        is_default, own = getattr(arguments, f"default_{name}"), getattr(arguments, name)
        if is_default or own is not None:
            entity.append(EntityData(entity_type=type_, entity_name=None if is_default else own))
    if not entity:
        raise CommandError("say whose quota it is: --user, --client, --ip, or --default-user, …")
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in arguments.quotas]
    answer = client.call_controller(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]))
    (result,) = answer.entries
    if result.error_code:
        error = BrokerError(result.error_code, result.error_message, what=_shown(entity))
        raise CommandError(f"{error}{did_you_mean('quota', (op.key for op in ops), error.code)}")
