"""`ottla user`: who may authenticate with a password, by SCRAM or PLAIN."""

from __future__ import annotations

import argparse
import json
import secrets
import sys

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.client.admin.users import MECHANISMS, credential
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from ottla.kproto.messages.access.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

HAS_ACTIONS = True


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    add = actions.add_parser(
        "add", help="add a user, or set a password. It is asked for, or read from standard input, and never stored"
    )
    add.add_argument("user")
    add.add_argument("--generate", action="store_true", help="generate a password and print it")
    listing = actions.add_parser("list", help="list the users and the mechanisms with which they can authenticate")
    options.add_json(listing)
    delete = actions.add_parser("delete", help="stop users from authenticating; open connections stay open")
    delete.add_argument("users", nargs="+", metavar="user")
    for action, act in ((add, _add), (listing, _list), (delete, _delete)):
        options.add_bootstrap(action)
        action.set_defaults(act=act)
    for action in (add, delete):
        action.add_argument(
            "--mechanism", action="append", choices=list(MECHANISMS), help="only this one; may be repeated"
        )


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        arguments.act(client, arguments)
    return 0


def _add(client: Client, arguments: argparse.Namespace) -> None:
    password = secrets.token_urlsafe(18) if arguments.generate else _ask_for_password(arguments.user)
    for name in arguments.mechanism or MECHANISMS:
        upsertion = credential(arguments.user, password, name)
        _alter(client, AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    if arguments.generate:
        print(password)


def _ask_for_password(user: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        password = getpass(f"password of {user}: ")
        if getpass("once more: ") != password:
            raise CommandError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandError("a password must not be empty: type it, send it to standard input, or use --generate")
    return password


def _list(client: Client, arguments: argparse.Namespace) -> None:
    names = {number: name for name, number in MECHANISMS.items()}
    found = {
        user: sorted(names.get(mechanism, str(mechanism)) for mechanism in mechanisms)
        for user, mechanisms in sorted(_mechanisms_by_user(client, None).items())
    }
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        options.print_table(("USER", "MECHANISMS"), ((user, ", ".join(known)) for user, known in found.items()))


def _delete(client: Client, arguments: argparse.Namespace) -> None:
    asked = {MECHANISMS[name] for name in arguments.mechanism or MECHANISMS}
    known = _mechanisms_by_user(client, arguments.users)
    for user in arguments.users:
        mechanisms = known.get(user, set()) & asked
        if not mechanisms:
            raise CommandError(f"there is no user {user}; `ottla user list` shows the users")
        for mechanism in sorted(mechanisms):
            deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
            _alter(client, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _mechanisms_by_user(client: Client, users: list[str] | None) -> dict[str, set[int]]:
    from ottla.kproto.messages.access.describe_user_scram_credentials import UserName

    named = None if users is None else [UserName(name=user) for user in dict.fromkeys(users)]
    answer = client.call(DescribeUserScramCredentialsRequest(users=named))
    if answer.error_code:
        raise BrokerError(answer.error_code, answer.error_message)
    found: dict[str, set[int]] = {}
    for result in answer.results:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
            raise BrokerError(result.error_code, result.error_message, what=result.user)
        if result.credential_infos:
            found[result.user] = {info.mechanism for info in result.credential_infos}
    return found


def _alter(client: Client, request: AlterUserScramCredentialsRequest) -> None:
    for result in client.call_controller(request).results:
        if result.error_code:
            raise BrokerError(result.error_code, result.error_message, what=result.user)
