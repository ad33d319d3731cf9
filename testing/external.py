"""An Apache Kafka that runs elsewhere, with the face of the test broker: the same tests run against it.

What goes beyond Kafka's protocol skips the test with a sentence: settings of the broker, faults, the clock, requests,
restarts, users. What a test leaves is removed after it: topics and groups that were not there before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.client.addresses import parse_addresses
from ottla.client.errors import AddressError, SecurityConfigError
from ottla.client.security import NO_SECURITY, Security, from_properties, protocol_of, read_properties
from ottla.kproto.errors import ErrorCode
from ottla.testing import topics
from ottla.testing.access import Access
from ottla.testing.contents import Contents
from ottla.testing.errors import BrokerError

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.client.client import Client
    from ottla.client.security import Login

_SETTLE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02


class ExternalBroker(Contents):
    """A cluster that tests use and do not own: `bootstrap` as clients take it, and a file of client properties that
    says how to connect. Raises BrokerError if the one is no address, or the other cannot be read.

    Whatever topics and groups it has when it is opened, it keeps. No two test runs may use one at the same time: each
    would remove what the other one has made.
    """

    #: The pytest fixture that provides it, for reports of failed tests.
    fixture = "ottla_broker"
    is_running = True

    def __init__(self, bootstrap: str, command_config: str | Path | None = None) -> None:
        super().__init__(_ExternalAccess(bootstrap, _security(command_config)))
        try:
            self._servers = parse_addresses(bootstrap)
        except AddressError as error:
            raise BrokerError(f"--ottla-bootstrap: {error}") from None
        self._bootstrap = bootstrap
        self._topics: frozenset[str] = frozenset()
        self._groups: frozenset[str] = frozenset()

    def __enter__(self) -> ExternalBroker:
        with self._client() as client:
            self._topics = frozenset(topics.listed(client))
            self._groups = frozenset(_groups(client))
        return self

    def __exit__(self, *_: object) -> None:
        self._close_ports()
        self.reset()
        self._forget_clients()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        skip(f"`{name}` needs a broker of Ottla's own, and this run uses {self._bootstrap}")

    @property
    def bootstrap(self) -> str:
        """What clients connect to, as it was given."""
        return self._bootstrap

    def reset(self) -> None:
        """Remove the topics and groups that were not there at first. A group with members is left alone."""
        self._forget_consumers()
        with self._client() as client:
            made = set(topics.listed(client)) - self._topics
            if made:
                topics.delete(client, sorted(made))
            _delete_groups(client, sorted(_groups(client) - self._groups))
            deadline = time.monotonic() + _SETTLE_SECONDS
            awaited = made - self._created_anew()
            while awaited & set(topics.listed(client)):
                if time.monotonic() > deadline:
                    raise BrokerError(f"{self._bootstrap} still has topics that were deleted {_SETTLE_SECONDS:g} s ago")
                time.sleep(_POLL_SECONDS)
        if made > awaited:
            self._reset_schemas()

    def _created_anew(self) -> set[str]:
        """The topics that others create again as soon as they are gone: that of the schema registry, if it runs."""
        if self._schemas is None:
            return set()
        from ottla.registry.store.log import TOPIC

        return {TOPIC}

    @property
    def _addresses(self) -> Sequence[tuple[str, int]]:
        return self._servers


class _ExternalAccess(Access):
    """One login, which is given: the tests' as well as the fixture's own."""

    def __init__(self, bootstrap: str, security: Security) -> None:
        super().__init__(None, None, tls=False)
        self.protocol = protocol_of(logs_in=security.login is not None, encrypts=security.tls is not None)
        self._bootstrap = bootstrap
        self._security = security

    @property
    def authority(self) -> str | None:
        return None if self._security.tls is None else self._security.tls.authorities

    @property
    def own(self) -> Security:
        return self._security

    def of_user(self, user: str | None, mechanism: str) -> Security:
        """The same whatever the mechanism; the test is skipped if it asks for somebody else."""
        del mechanism
        login = self._security.login
        if user is not None and (login is None or user != login.user):
            skip(f"the test needs the user {user!r}, and this run connects to {self._bootstrap} {_as_whom(login)}")
        return self._security


def _as_whom(login: Login | None) -> str:
    return "without a login" if login is None else f"as {login.user!r}"


def _security(command_config: str | Path | None) -> Security:
    if command_config is None:
        return NO_SECURITY
    try:
        return from_properties(read_properties(command_config))
    except SecurityConfigError as error:
        raise BrokerError(f"--ottla-command-config: {error}") from None


def skip(reason: str) -> NoReturn:
    """Skip the test that asks for what only Ottla's own broker has."""
    import pytest

    pytest.skip(reason)


def _groups(client: Client) -> set[str]:
    from ottla.kproto.messages.groups.list_groups import ListGroupsRequest

    found: set[str] = set()
    for node_id in _nodes(client):
        found |= {group.group_id for group in client.broker(node_id).call(ListGroupsRequest()).groups}
    return found


def _nodes(client: Client) -> list[int]:
    return [broker.node_id for broker in client.metadata([]).brokers]


def _delete_groups(client: Client, group_ids: Sequence[str]) -> None:
    """Delete groups, each at its coordinator: whichever broker that is."""
    from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest

    pending = list(group_ids)
    for node_id in _nodes(client) if pending else ():
        answer = client.broker(node_id).call(DeleteGroupsRequest(groups_names=pending))
        others: Mapping[str, int] = {result.group_id: result.error_code for result in answer.results}
        pending = [name for name in pending if others.get(name) == ErrorCode.NOT_COORDINATOR]
        if not pending:
            return
