"""The rules of Kafka's StandardAuthorizer, against a model that looks at every entry, and its own test's cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.acl_networks import parse_address
from ottla.metadata.acls import (
    ANY,
    MATCH,
    Acl,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    new_acl,
)
from ottla.metadata.errors import InvalidRequestError, UnsupportedFeatureLevelError
from ottla.security import authorizer as authorizer_module
from ottla.security.authorizer import Authorizer, authorizer_of
from ottla.settings.config import BrokerConfig

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
HOST = "10.0.0.1"


def acl(
    name: str,
    operation: AclOperation = READ,
    *,
    pattern: AclPattern = LITERAL,
    principal: str = "User:bob",
    host: str = "*",
    permission: AclPermission = ALLOW,
    resource: AclResource = TOPIC,
) -> Acl:
    return Acl(resource, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, super_users: tuple[str, ...] = (), allows_without_acl: bool = False) -> Authorizer:
    made = Authorizer(super_users, allows_without_acl=allows_without_acl)
    made.replace(acls)
    return made


def may(made: Authorizer, name: str, operation: AclOperation = READ, host: str = HOST) -> bool:
    return made.allows("User:bob", host, operation, TOPIC, name)


names = st.text("ab", min_size=1, max_size=3)
acls = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    names | st.just("*"),
    st.sampled_from(AclPattern),
    st.sampled_from(["User:bob", "User:eve", "User:*"]),
    st.sampled_from(["*", HOST, "10.0.0.2"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]),
    st.sampled_from(AclPermission),
)


def model(entries: list[Acl], operation: AclOperation, name: str, *, default: bool) -> bool:
    """Every entry by the words of the documentation."""
    implied = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }
    of_resource = [
        it
        for it in entries
        if it.resource is TOPIC and (name.startswith(it.name) if it.pattern is PREFIXED else it.name in (name, "*"))
    ]
    concerned = [it for it in of_resource if it.principal in ("User:bob", "User:*") and it.host in (HOST, "*")]
    if any(it.permission is DENY and it.operation in (operation, ALL) for it in concerned):
        return False
    enough = {operation, ALL} | implied.get(operation, set())
    if any(it.permission is ALLOW and it.operation in enough for it in concerned):
        return True
    return default and not of_resource


@given(
    st.lists(acls, max_size=12),
    st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.DELETE]),
    names,
    st.booleans(),
)
def test_decisions_are_the_models(entries: list[Acl], operation: AclOperation, name: str, default: bool) -> None:
    made = authorizer(*entries, allows_without_acl=default)
    assert may(made, name, operation) is model(entries, operation, name, default=default)
    assert may(made, name, operation) is model(entries, operation, name, default=default)  # the one that was kept


@given(st.lists(acls, max_size=8), st.lists(acls, max_size=8), names)
def test_what_was_kept_is_forgotten_with_the_entries(before: list[Acl], after: list[Acl], name: str) -> None:
    made = authorizer(*before)
    may(made, name)
    made.replace(after)
    assert may(made, name) is model(after, READ, name, default=False)


@given(st.lists(acls, max_size=10))
def test_who_may_write_to_one_topic_may_write_to_some(entries: list[Acl]) -> None:
    made = authorizer(*entries)
    some = made.allows_any("User:bob", HOST, WRITE, TOPIC)
    one = any(may(made, name, WRITE) for name in ("a", "b", "ab", "ba", "aab", "bbb"))
    assert some or not one


class TestAnyResource:
    """As Kafka's AuthorizerTest has it for authorizeByResourceType."""

    @pytest.mark.parametrize(
        ("entries", "expected"),
        [
            ([], False),
            ([acl("t", WRITE)], True),
            ([acl("t", READ)], False),
            ([acl("t", WRITE, pattern=PREFIXED)], True),
            ([acl("*", WRITE), acl("t", WRITE, permission=DENY)], True),
            ([acl("*", WRITE), acl("*", WRITE, permission=DENY)], False),
            ([acl("t", WRITE), acl("t", WRITE, permission=DENY)], False),
            ([acl("team", WRITE), acl("te", WRITE, pattern=PREFIXED, permission=DENY)], False),
            ([acl("t", WRITE, pattern=PREFIXED), acl("te", WRITE, pattern=PREFIXED, permission=DENY)], True),
            ([acl("t", WRITE, principal="User:eve")], False),
            ([acl("t", WRITE, host="10.9.9.9")], False),
            ([acl("t", WRITE, resource=GROUP)], False),
        ],
    )
    def test_cases(self, entries: list[Acl], expected: bool) -> None:
        assert authorizer(*entries).allows_any("User:bob", HOST, WRITE, TOPIC) is expected

    def test_super_users_and_the_default(self) -> None:
        denied = acl("*", WRITE, permission=DENY)
        assert authorizer(denied, super_users=("User:bob",)).allows_any("User:bob", HOST, WRITE, TOPIC)
        assert authorizer(allows_without_acl=True).allows_any("User:bob", HOST, WRITE, TOPIC)
        assert not authorizer(denied, allows_without_acl=True).allows_any("User:bob", HOST, WRITE, TOPIC)


class TestReasons:
    def test_each(self) -> None:
        made = authorizer(acl("t"), acl("t", permission=DENY, host="10.9.9.9"), super_users=("User:root",))

        def reason(principal: str, name: str, host: str = HOST) -> tuple[bool, str]:
            return made.decide(principal, host, READ, TOPIC, name)

        assert reason("User:bob", "t") == (True, "ALLOW User:bob READ on TOPIC t")
        assert reason("User:bob", "t", "10.9.9.9") == (False, "DENY User:bob READ on TOPIC t from 10.9.9.9")
        assert reason("User:eve", "t")[1] == "there are entries for the resource, and none of them allows it"
        assert reason("User:bob", "u") == (False, "there is no entry for the resource")
        assert reason("User:root", "u") == (True, "it is a super user (super.users)")

    def test_a_super_user_is_denied_nothing(self) -> None:
        assert may(authorizer(acl("*", ALL, permission=DENY), super_users=("User:bob",)), "t")


class TestSettings:
    def test_none_is_asked_by_default(self) -> None:
        assert authorizer_of(BrokerConfig({})) is None

    def test_super_users_may_have_commas(self) -> None:
        made = authorizer_of(
            BrokerConfig(
                {
                    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                    "super.users": " User:CN=a,O=b ; User:bob;",
                }
            )
        )
        assert made is not None
        assert may(made, "t")
        assert made.allows("User:CN=a,O=b", HOST, READ, TOPIC, "t")
        assert not made.allows("User:eve", HOST, READ, TOPIC, "t")


def test_what_clients_make_up_does_not_fill_the_memory() -> None:
    made = authorizer(acl("t"))
    assert not may(made, "x" * 250)
    assert not made._kept
    for number in range(50_001):
        assert not may(made, f"{number}")
    assert 0 < len(made._kept) <= 50_000


def test_answers_that_no_longer_fit_are_not_freed_all_at_once() -> None:
    """50,000 at once hold all others up for some ms."""
    made = authorizer(acl("t"))
    kept = 0
    for number in range(100_001):
        assert not may(made, f"{number}")
        before, kept = kept, len(made._kept) + len(made._outdated)
        assert before <= kept <= 50_000


def test_who_may_write_to_some_topic_is_not_looked_up_among_the_entries_of_others() -> None:
    compared = []

    class Other(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return str.__eq__(self, other)

    made = authorizer(*(acl(f"t{number}", principal=Other(f"User:{number}")) for number in range(100)), acl("u"))
    compared.clear()
    assert made.allows_any("User:bob", HOST, READ, TOPIC)
    assert not made.allows_any("User:eve", HOST, READ, TOPIC)
    assert not compared


class TestFilters:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            (AclFilter(), {"ab", "a*", "*"}),
            (AclFilter(name="ab"), {"ab"}),
            (AclFilter(name="ab", pattern=MATCH), {"ab", "a*", "*"}),
            (AclFilter(name="xy", pattern=MATCH), {"*"}),
            (AclFilter(name="a", pattern=PREFIXED), {"a*"}),
            (AclFilter(name="a", pattern=LITERAL), set()),
            (AclFilter(pattern=LITERAL), {"ab", "*"}),
            (AclFilter(resource=GROUP), set()),
            (AclFilter(principal="User:bob", host="*", operation=READ, permission=ALLOW), {"ab", "a*", "*"}),
            (AclFilter(operation=ALL), set()),
        ],
    )
    def test_what_they_mean(self, asked: AclFilter, expected: set[str]) -> None:
        entries = {"ab": acl("ab"), "a*": acl("a", pattern=PREFIXED), "*": acl("*")}
        assert {name for name, entry in entries.items() if asked.accepts(entry)} == expected

    @pytest.mark.parametrize("asked", [AclFilter(resource=0), AclFilter(pattern=9), AclFilter(operation=0)])
    def test_numbers_that_mean_nothing(self, asked: AclFilter) -> None:
        with pytest.raises(InvalidRequestError, match="Unknown"):
            asked.check()

    @pytest.mark.parametrize(
        ("parts", "words"),
        [
            ((ANY, "t", LITERAL, "User:a", "*", READ, ALLOW), "Invalid resourceType ANY"),
            ((TOPIC, "t", MATCH, "User:a", "*", READ, ALLOW), "Invalid patternType MATCH"),
            ((TOPIC, "t", LITERAL, "User:a", "*", 0, ALLOW), "Invalid operation UNKNOWN"),
            ((TOPIC, "t", LITERAL, "User:a", "*", READ, ANY), "Invalid permissionType ANY"),
            ((TOPIC, "", LITERAL, "User:a", "*", READ, ALLOW), "empty resource name"),
            ((TOPIC, "t", LITERAL, "alice", "*", READ, ALLOW), "Could not parse principal"),
            ((TOPIC, "t", LITERAL, "User:a", "", READ, ALLOW), "Host pattern cannot be null or empty"),
            ((TOPIC, "t", LITERAL, "User:a", "10.0.0.0/33", READ, ALLOW), r"'10.0.0.0/33': Value \[33\] not in"),
            ((AclResource.CLUSTER, "c", LITERAL, "User:a", "*", READ, ALLOW), "kafka-cluster"),
        ],
    )
    def test_entries_that_are_none(self, parts: tuple[int, str, int, str, str, int, int], words: str) -> None:
        with pytest.raises(InvalidRequestError, match=words):
            new_acl(*parts)


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0:0:0:0:0:7", "2001:db8::7"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
    ],
)
def test_an_address_is_the_same_however_it_is_written(written: str, host: str) -> None:
    """Java, and so Kafka's tools, write IPv6 addresses out: an entry that denies must hold here, too."""
    made = authorizer(acl("t"), acl("t", host=written, permission=DENY))
    assert may(made, "t", host="2001:db8::8")
    assert not may(made, "t", host=host)
    assert not made.allows_any("User:bob", host, READ, TOPIC)


async def test_many_entries_are_followed_in_steps_and_count_all_at_once() -> None:
    made = authorizer(acl("first"))
    assert may(made, "first")
    assert not may(made, "last")
    many = [*(acl(f"t{number}") for number in range(3000)), acl("last")]
    delta: Any = SimpleNamespace(before=SimpleNamespace(acls=()), after=SimpleNamespace(acls=many))
    seen = []

    async def look() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            seen.append((may(made, "first"), may(made, "last"), may(made, "t0")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await made.apply(delta)
        nursery.cancel_scope.cancel()
    assert len(seen) > 3, "nobody else had a turn"
    assert set(seen) <= {(True, False, False), (False, True, True)}
    assert not may(made, "first")
    assert may(made, "last")


class TestNetworks:
    """Hosts that are networks (KIP-1276)."""

    @pytest.mark.parametrize(
        ("network", "inside", "outside"),
        [
            ("10.0.0.0/8", ["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"], ["11.0.0.0", "9.255.255.255", "::1"]),
            ("10.1.2.3/8", ["10.200.0.1"], ["11.1.2.3"]),
            ("10.0.0.7/32", ["10.0.0.7"], ["10.0.0.6"]),
            ("0.0.0.0/0", ["1.2.3.4", "255.255.255.255"], ["0.0.0.0", "::1"]),
            ("2001:db8::/32", ["2001:DB8:0:0:0:0:0:7", "2001:db8:ffff::"], ["2001:db9::", "10.0.0.1"]),
            ("fe80::1%1/64", ["fe80:0:0:0:0:0:0:9%eth0"], ["fe81::1"]),
            ("::/0", ["::1", "2001:db8::1"], ["10.0.0.1", "::ffff:10.0.0.1"]),
            ("10.0.0.0/33", [], ["10.0.0.0", "10.0.0.0/33x"]),
        ],
    )
    def test_who_belongs_to_them(self, network: str, inside: list[str], outside: list[str]) -> None:
        made = authorizer(acl("t", WRITE, host=network))
        for hosts, expected in ((inside, True), (outside, False), (["unknown"], False)):
            for host in hosts:
                assert may(made, "t", WRITE, host) is expected, host
                assert made.allows_any("User:bob", host, WRITE, TOPIC) is expected, host

    def test_a_network_is_denied(self) -> None:
        made = authorizer(acl("t"), acl("t", host="10.0.0.0/24", permission=DENY))
        assert not may(made, "t", host="10.0.0.9")
        assert may(made, "t", host="10.0.1.9")

    def test_networks_are_read_once_and_addresses_only_for_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = authorizer(*(acl("t", host=f"10.{number}.0.0/16") for number in range(100)))
        without = authorizer(acl("t", host="10.0.0.1"))
        read: list[str] = []
        monkeypatch.setattr(authorizer_module, "network_of", read.append)

        def parse(host: str) -> Any:
            read.append(host)
            return parse_address(host)

        monkeypatch.setattr(authorizer_module, "parse_address", parse)
        assert may(made, "t", host="10.99.1.1")
        assert may(made, "t", host="10.99.1.1")
        assert may(without, "t", host="10.0.0.1")
        assert read == ["10.99.1.1"]

    def test_an_entry_is_kept_as_it_was_written(self) -> None:
        made = new_acl(TOPIC, "t", LITERAL, "User:a", "10.1.2.3/8", READ, ALLOW)
        assert made.host == "10.1.2.3/8"
        assert AclFilter(host="10.1.2.3/8").accepts(made)
        assert not AclFilter(host="10.0.0.0/8").accepts(made)

    def test_an_older_cluster_has_none(self) -> None:
        words = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        with pytest.raises(UnsupportedFeatureLevelError, match=words):
            new_acl(TOPIC, "t", LITERAL, "User:a", "10.0.0.0/99", READ, ALLOW, allows_networks=False)
        assert new_acl(TOPIC, "t", LITERAL, "User:a", "10.0.0.1", READ, ALLOW, allows_networks=False)


def test_a_decision_looks_at_no_entry_about_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many may be about one topic as there are users."""
    looked: list[Acl] = []
    concerns = authorizer_module._concerns

    def watched(entry: Any, *rest: Any) -> bool:
        looked.append(entry.acl)
        return concerns(entry, *rest)

    monkeypatch.setattr(authorizer_module, "_concerns", watched)
    own, everybodys = acl("shared", principal="User:me"), acl("shared", principal="User:*", operation=WRITE)
    made = authorizer(*(acl("shared", principal=f"User:{number}") for number in range(1000)), own, everybodys)
    assert made.decide("User:me", HOST, READ, TOPIC, "shared").is_allowed
    assert not made.decide("User:other", HOST, READ, TOPIC, "shared").is_allowed
    assert looked == [own, everybodys, everybodys]
