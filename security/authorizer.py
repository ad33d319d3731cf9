"""Authorization by ACLs, with the rules of Kafka's StandardAuthorizer.

- A super user may do everything.
- An entry counts if principal, host, operation and resource fit: `User:*`, the host `*`, the network of the host, the
  operation ALL, the literal name `*` and prefixes fit as well. Allowing READ, WRITE, DELETE or ALTER allows DESCRIBE,
  and ALTER_CONFIGS allows DESCRIBE_CONFIGS; denying them denies nothing else.
- One entry that denies beats all that allow. If there are entries for a resource and none of them allows, it is denied;
  if there are none at all, `allow.everyone.if.no.acl.found` decides.

Answers are cached until an entry changes: a limited number of them, and only about names that are not too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ottla.metadata.acl_networks import Network, network_of, parse_address
from ottla.metadata.acls import (
    WILDCARD,
    Acl,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

    from ottla.metadata.image import MetadataDelta
    from ottla.settings.config import BrokerConfig

_ANYBODY: Final = "User:*"
_MAX_KEPT: Final = 50_000
#: As long as a topic's name may be. Names come from clients, whether such a thing exists or not: answers about longer
#: ones are not cached, or they would fill the memory.
_MAX_KEPT_NAME_LENGTH: Final = 249
_IMPLIED: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}


_Answers = dict[tuple[str, str, int, str | None], bool]


class Decision(NamedTuple):
    """Whether something is allowed, and by which rule."""

    is_allowed: bool
    rule: str


class _Entry(NamedTuple):
    """An entry as it is compared: its network, if it has one, is read once."""

    acl: Acl
    network: Network | None


class _Asker:
    """The client's address. It is parsed when the first network is compared with it."""

    __slots__ = ("_address", "hosts")

    def __init__(self, host: str) -> None:
        #: The hosts that fit, beside networks.
        self.hosts = (_same_for_all(host), WILDCARD)
        self._address: IPv4Address | IPv6Address | Literal[False] | None = False

    def is_in(self, network: Network) -> bool:
        if self._address is False:
            self._address = parse_address(self.hosts[0])
        return self._address is not None and network.has(self._address)


_About = dict[str, list[_Entry]]
"""Entries by the principals that they are about: as many may be about one topic as there are users."""


class _Entries:
    """The entries for one type of resource, by how they name it, and by whom they are about."""

    def __init__(self) -> None:
        self._literal: dict[str, _About] = {}
        self._prefixed: dict[str, _About] = {}
        self._lengths: list[int] = []
        self._about: _About = {}

    def add(self, entry: _Entry) -> None:
        acl = entry.acl
        self._about.setdefault(acl.principal, []).append(entry)
        named = self._literal if acl.pattern is AclPattern.LITERAL else self._prefixed
        named.setdefault(acl.name, {}).setdefault(acl.principal, []).append(entry)
        if named is self._prefixed and len(acl.name) not in self._lengths:
            self._lengths.append(len(acl.name))

    def of(self, name: str) -> Iterator[_About]:
        """All entries whose resources include the one of this name, by how they name it."""
        if (literal := self._literal.get(name)) is not None:
            yield literal
        if name != WILDCARD and (anything := self._literal.get(WILDCARD)) is not None:
            yield anything
        for length in self._lengths:
            if length <= len(name) and (prefixed := self._prefixed.get(name[:length])) is not None:
                yield prefixed

    def about(self, principal: str) -> Iterator[_Entry]:
        """All entries that are about somebody, by name or because they are about everybody."""
        yield from self._about.get(principal, ())
        if principal != _ANYBODY:
            yield from self._about.get(_ANYBODY, ())


class _Hosts(dict[str, tuple[str, Network | None]]):
    """The form of each host that is compared, and its network, if it is one: many entries share a host."""

    def __missing__(self, host: str) -> tuple[str, Network | None]:
        read = self[host] = _same_for_all(host), network_of(host)
        return read


class Authorizer:
    """Decides by the entries in the metadata, which `apply` follows."""

    def __init__(self, super_users: Iterable[str], *, allows_without_acl: bool) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allows_without_acl
        self._entries: dict[AclResource, _Entries] = {}
        self._kept: _Answers = {}
        # Freeing so many answers at once takes milliseconds: each new one frees an old one.
        self._outdated: _Answers = {}

    async def apply(self, delta: MetadataDelta) -> None:
        """Follow the metadata: in steps, for there may be tens of thousands of entries, which are all read again."""
        if delta.after.acls is delta.before.acls:
            return
        entries: dict[AclResource, _Entries] = {}
        time_slice, hosts = TimeSlice(), _Hosts()
        for acl in delta.after.acls:
            await time_slice.maybe_yield()
            _enter(acl, entries, hosts)
        self._entries = entries
        outdated, self._kept = self._kept, {}
        while outdated:
            outdated.popitem()
            await time_slice.maybe_yield()

    def replace(self, acls: Iterable[Acl]) -> None:
        """Decide by these entries from now on."""
        entries: dict[AclResource, _Entries] = {}
        hosts = _Hosts()
        for acl in acls:
            _enter(acl, entries, hosts)
        self._entries = entries
        self._kept.clear()

    def allows(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> bool:
        """Whether somebody may do something to one resource."""
        # Members of enumerations are slow to hash.
        key = (principal, host, operation * 16 + resource, name)
        known = self._kept.get(key)
        if known is None:
            known = self.decide(principal, host, operation, resource, name).is_allowed
            if len(name) <= _MAX_KEPT_NAME_LENGTH:
                self._keep(key, is_allowed=known)
        return known

    def _keep(self, key: tuple[str, str, int, str | None], *, is_allowed: bool) -> None:
        if len(self._kept) >= _MAX_KEPT:
            self._outdated, self._kept = self._kept, {}
        if self._outdated:
            self._outdated.popitem()
        self._kept[key] = is_allowed

    def decide(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> Decision:
        """As `allows`, with the reason, and not cached."""
        if principal in self._super_users:
            return Decision(True, "it is a super user (super.users)")
        asker = _Asker(host)
        entries = self._entries.get(resource)
        has_entries = False
        allowing: Acl | None = None
        for named in entries.of(name) if entries is not None else ():
            has_entries = True
            for entry in (*named.get(principal, ()), *named.get(_ANYBODY, ())):
                if not _concerns(entry, asker, operation):
                    continue
                if entry.acl.permission is AclPermission.DENY:
                    return Decision(False, str(entry.acl))
                allowing = entry.acl
        if allowing is not None:
            return Decision(True, str(allowing))
        if has_entries:
            return Decision(False, "there are entries for the resource, and none of them allows it")
        if self._allows_without_acl:
            return Decision(True, "there is no entry for the resource (allow.everyone.if.no.acl.found)")
        return Decision(False, "there is no entry for the resource")

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        """Whether there is some resource of the type, or may be one, to which somebody may do something (KIP-679)."""
        key = (principal, host, operation * 16 + resource, None)
        known = self._kept.get(key)
        if known is None:
            known = self._decide_any(principal, host, operation, resource)
            self._keep(key, is_allowed=known)
        return known

    def _decide_any(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        # Kafka asks for this name, too, so that super users, and everybody if no entries are needed, are let in.
        if self.allows(principal, host, operation, resource, "hardcode"):
            return True
        entries = self._entries.get(resource)
        if entries is None:
            return False
        asker = _Asker(host)
        names: dict[tuple[AclPermission, AclPattern], set[str]] = {
            (permission, pattern): set() for permission in AclPermission for pattern in AclPattern
        }
        for entry in entries.about(principal):
            acl = entry.acl
            if acl.operation in (operation, AclOperation.ALL) and _concerns(entry, asker, operation):
                names[acl.permission, acl.pattern].add(acl.name)
        denied = names[AclPermission.DENY, AclPattern.LITERAL]
        denied_prefixes = tuple(names[AclPermission.DENY, AclPattern.PREFIXED])
        if WILDCARD in denied:
            return False
        literal = names[AclPermission.ALLOW, AclPattern.LITERAL]
        if WILDCARD in literal:
            return True
        some = (literal - denied) | names[AclPermission.ALLOW, AclPattern.PREFIXED]
        return any(not name.startswith(denied_prefixes) for name in some)


def _enter(acl: Acl, entries: dict[AclResource, _Entries], hosts: _Hosts) -> None:
    host, network = hosts[acl.host]
    of_resource = entries.get(acl.resource)
    if of_resource is None:
        of_resource = entries[acl.resource] = _Entries()
    of_resource.add(_Entry(acl if host == acl.host else acl._replace(host=host), network))


def _same_for_all(host: str) -> str:
    """An address in the one form that we compare: Java writes `0:0:0:0:0:0:0:1` where others write `::1`."""
    if ":" not in host or "/" in host:
        return host
    address = parse_address(host)
    return host if address is None else str(address)


def _concerns(entry: _Entry, asker: _Asker, operation: AclOperation) -> bool:
    acl, network = entry
    if (acl.host not in asker.hosts) if network is None else not asker.is_in(network):
        return False
    if acl.operation in (operation, AclOperation.ALL):
        return True
    return acl.permission is AclPermission.ALLOW and acl.operation in _IMPLIED.get(operation, ())


def authorizer_of(config: BrokerConfig) -> Authorizer | None:
    """The authorizer that the settings ask for; None if everybody may do everything."""
    if not config.authorizer_class_name:
        return None
    super_users = filter(None, map(str.strip, config.super_users.split(";")))
    return Authorizer(super_users, allows_without_acl=config.allow_everyone_if_no_acl_found)
