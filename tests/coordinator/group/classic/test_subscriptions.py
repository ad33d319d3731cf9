"""Which topics a classic group reads: their offsets do not expire."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.coordinator.group.classic.member import ClassicMember, Protocol

TOPIC_T = b"\0\0\0\1\0\1t" + b"\xff" * 4


def stable_group(*subscriptions: bytes) -> ClassicGroup:
    group = ClassicGroup("g", now_ms=7)
    group.protocol_type, group.state = "consumer", ClassicState.STABLE
    for number, subscription in enumerate(subscriptions):
        group.add(
            ClassicMember(
                f"m{number}",
                group_instance_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=1,
                session_timeout_ms=1,
                protocols=[Protocol("other", b""), Protocol("range", subscription)],
            )
        )
    group.agree("range")
    return group


@pytest.mark.parametrize("version", [b"\0\0", b"\0\1", b"\0\3", b"\0\x63", b"\xff\xff"])
def test_topics_are_read_as_version_0_whatever_the_version(version: bytes) -> None:
    group = stable_group(version + TOPIC_T, version + b"\0\0\0\0" + b"\xff" * 4)
    assert group.subscribed_topics() == frozenset({"t"})
    assert group.offset_expiry() == (None, frozenset({"t"}))


@pytest.mark.parametrize("subscription", [b"", b"\0", b"\0\1", b"\0\0\0\0\0\1\0\1", b"\0\0\0\0\0\2\0\1t"])
def test_nothing_expires_while_a_subscription_cannot_be_read(subscription: bytes) -> None:
    group = stable_group(b"\0\0" + TOPIC_T, subscription)
    assert group.subscribed_topics() is None
    assert group.offset_expiry() is None
