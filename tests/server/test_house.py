"""What is said once, or kept small, because it was not: each test names what would come back."""

from __future__ import annotations

import re
from typing import Final

from ottla.server.apis.context import RequestContext
from ottla.server.network.connection import Connection
from tests.rooms import BROKER, ROOT, sources

ROOMS: Final = (*BROKER, "client", "console", "metastore", "pipeline", "proxy", "registry", "rest", "runtime", "tiers")


def places(pattern: str, *rooms: str) -> list[str]:
    """The files in which a pattern is found."""
    wanted = re.compile(pattern, re.MULTILINE)
    return [str(path.relative_to(ROOT)) for path in sources(*rooms) if wanted.search(path.read_text())]


def test_pauses_followers_and_slices_of_time_are_made_once() -> None:
    assert places(r"^class \w*(Backoff|Follower|TimeSlice)\b", *ROOMS) == [
        "replica/following/log_follower.py",
        "runtime/backoff.py",
        "runtime/time_slice.py",
    ]


def test_a_groups_kind_is_asked_for_where_groups_are_looked_up_alone() -> None:
    assert places(r"isinstance\((self\.)?_?group,", *BROKER) == ["coordinator/group/shard/shard.py"]


def test_what_every_request_has_stays_small() -> None:
    assert len(RequestContext.__slots__) <= 13
    assert len(Connection.__slots__) <= 18
