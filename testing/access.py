"""Who may connect to a broker under test, and what they may do: users, access control lists, certificates.

The fixture itself connects as a super user, with a new password for each broker.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ottla.client.admin.acls import AclTextError, parse_entry
from ottla.client.security import Login, Security, protocol_of
from ottla.testing import client_configs
from ottla.testing.errors import BrokerError

if TYPE_CHECKING:
    import ssl

    from ottla.client.client import Client
    from ottla.client.tls import Tls
    from ottla.kproto.messages.access.create_acls import AclCreation
    from ottla.security.certificates import Pair

SCRAM: Final = "SCRAM-SHA-512"

_HOSTS: Final = ("127.0.0.1", "localhost")
_FIXTURE: Final = "ottla-fixture"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", SCRAM)
_ANY: Final = 1


class Access:
    """What `users`, `acls` and `tls` of a broker or a cluster mean. Raises BrokerError if they make no sense."""

    def __init__(self, users: Mapping[str, str] | None, acls: Iterable[str] | None, *, tls: bool) -> None:
        if acls is not None and users is None:
            raise BrokerError("acls say what users may do: give users as well")
        self._users = dict(users or {})
        self._entries = _entries(acls or ())
        self._asks_who = users is not None
        self._authorizes = acls is not None
        self._encrypts = tls
        self._password = secrets.token_urlsafe(18)
        self._credentials: list[Any] = []
        self.protocol = protocol_of(logs_in=self._asks_who, encrypts=tls)

    @property
    def is_open(self) -> bool:
        """Whether anybody may connect."""
        return self.protocol == "PLAINTEXT"

    @property
    def authorizes(self) -> bool:
        """Whether it is checked who may do what."""
        return self._authorizes

    @property
    def authority(self) -> str | None:
        """The certificate that clients have to trust, in PEM; None without TLS."""
        return _certificates()[0].certificate.decode() if self._encrypts else None

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """The broker's settings; `given` are the ones that the test gives."""
        if self.is_open:
            return {}
        if "listeners" in given:
            raise BrokerError("give either the setting listeners, or users and tls")
        found: dict[str, str] = {}
        if self._asks_who:
            found |= {
                "sasl.enabled.mechanisms": given.get("sasl.enabled.mechanisms", ",".join(_MECHANISMS)),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
            }
        if self._authorizes:
            given_super_users = given.get("super.users")
            found |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"{f'{given_super_users};' if given_super_users else ''}User:{_FIXTURE}",
            }
        return found

    def secrets(self) -> dict[str, str]:
        """Settings that nobody else may see."""
        found: dict[str, str] = {}
        if self._asks_who:
            found[f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required username={_FIXTURE} "
                f'password="{self._password}" user_{_FIXTURE}="{self._password}";'
            )
        if self._encrypts:
            authority, broker = _certificates()
            found |= {
                "ssl.keystore.key": broker.key.decode(),
                "ssl.keystore.certificate.chain": broker.certificate.decode(),
                "ssl.truststore.certificates": authority.certificate.decode(),
            }
        return found

    @property
    def own(self) -> Security:
        """How the fixture itself connects."""
        return Security(Login("PLAIN", _FIXTURE, self._password) if self._asks_who else None, self._tls)

    def of_user(self, user: str | None, mechanism: str) -> Security:
        """How a user connects; None: the first one. Raises BrokerError if there is no such user."""
        return Security(Login(mechanism, *self._known(user)) if self._asks_who else None, self._tls)

    @property
    def _tls(self) -> Tls | None:
        if not self._encrypts:
            return None
        from ottla.client.tls import Tls

        return Tls(authorities=self.authority)

    def prepare(self, client: Client) -> None:
        """Make these the only users, with exactly these rights."""
        if self._asks_who:
            _set_users(client, self._hashed())
        if self._authorizes:
            _set_entries(client, self._entries)

    def is_prepared(self, client: Client) -> bool:
        """Whether the broker that a client asks knows all of it."""
        known = {(it.name, it.mechanism) for each in self._credentials for it in each}
        return (not self._asks_who or set(_credentials(client)) == known) and (
            not self._authorizes or _count_entries(client) == len({repr(it) for it in self._entries})
        )

    def client_config(self, bootstrap: str, user: str | None, mechanism: str) -> dict[str, Any]:
        """How a user connects, as settings with librdkafka's names."""
        return client_configs.librdkafka_config(bootstrap, self.of_user(user, mechanism))

    def java_config(self, bootstrap: str, user: str | None, mechanism: str) -> dict[str, Any]:
        """The same with Java's names."""
        return client_configs.java_config(bootstrap, self.of_user(user, mechanism))

    def ssl_context(self) -> ssl.SSLContext | None:
        """An SSL context that trusts the broker's certificate; None without TLS."""
        tls = self.own.tls
        if tls is None:
            return None
        from ottla.client.tls import context_of

        return context_of(tls)

    def _known(self, user: str | None) -> tuple[str, str]:
        name = next(iter(self._users), "") if user is None else user
        if name not in self._users:
            raise BrokerError(f"there is no user {name!r}: there are {', '.join(self._users) or 'none'}")
        return name, self._users[name]

    def _hashed(self) -> list[Any]:
        """The users' credentials; hashing takes milliseconds, so it is done once."""
        if not self._credentials:
            from ottla.client.admin.users import MECHANISMS, credential

            self._credentials = [
                [credential(name, password, mechanism) for name, password in self._users.items()]
                for mechanism in MECHANISMS
            ]
        return self._credentials


def _entries(acls: Iterable[str]) -> list[AclCreation]:
    try:
        return [entry for text in ([acls] if isinstance(acls, str) else acls) for entry in parse_entry(text)]
    except AclTextError as error:
        raise BrokerError(f"acls: {error}") from None


@lru_cache(maxsize=1)
def _certificates() -> tuple[Pair, Pair]:
    """An authority and a broker's certificate, for this process."""
    from ottla.security.certificates import issue, make_authority
    from ottla.settings.config import ConfigError

    try:
        authority = make_authority("Ottla CA for tests", days=7)
        return authority, issue(authority, "broker", _HOSTS, days=7)
    except ConfigError as error:
        raise BrokerError(str(error)) from None


def _set_users(client: Client, credentials: Sequence[Any]) -> None:
    from ottla.kproto.messages.access.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )

    known = {(it.name, it.mechanism) for each in credentials for it in each}
    others = [
        ScramCredentialDeletion(name=name, mechanism=mechanism)
        for name, mechanism in _credentials(client)
        if (name, mechanism) not in known
    ]
    # A request changes a user once.
    requests = [AlterUserScramCredentialsRequest(deletions=[it]) for it in others]
    requests += [AlterUserScramCredentialsRequest(upsertions=list(each)) for each in credentials if each]
    for request in requests:
        for result in client.call_controller(request).results:
            _check(result)


def _credentials(client: Client) -> list[tuple[str, int]]:
    from ottla.kproto.messages.access.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

    described = client.call(DescribeUserScramCredentialsRequest(users=None))
    return [(result.user, info.mechanism) for result in described.results for info in result.credential_infos]


def _count_entries(client: Client) -> int:
    from ottla.kproto.messages.access.describe_acls import DescribeAclsRequest

    everything = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    return sum(len(resource.acls) for resource in client.call(everything).resources)


def _set_entries(client: Client, entries: Sequence[AclCreation]) -> None:
    from ottla.kproto.messages.access.create_acls import CreateAclsRequest
    from ottla.kproto.messages.access.delete_acls import DeleteAclsFilter, DeleteAclsRequest

    everything = DeleteAclsFilter(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    for result in client.call_controller(DeleteAclsRequest(filters=[everything])).filter_results:
        _check(result)
    if entries:
        for result in client.call_controller(CreateAclsRequest(creations=list(entries))).results:
            _check(result)


def _check(result: Any) -> None:
    if result.error_code:
        from ottla.client.errors import BrokerError as RefusedError

        raise RefusedError(result.error_code, result.error_message)
