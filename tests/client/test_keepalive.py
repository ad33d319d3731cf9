"""What a system is told about TCP's probes, by the names that it has for them."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from ottla.client import keepalive
from ottla.client.keepalive import keepalive_options


def test_they_are_taken_here() -> None:
    with socket.socket() as own:
        for option in keepalive_options(idle_s=7, interval_s=3, count=2):
            own.setsockopt(*option)
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 3


BARE = {"SOL_SOCKET": 1, "SO_KEEPALIVE": 2, "IPPROTO_TCP": 6}


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({}, []),
        ({"TCP_KEEPALIVE": 16, "TCP_KEEPINTVL": 257, "TCP_KEEPCNT": 258}, [(6, 16, 60), (6, 257, 20), (6, 258, 3)]),
        ({"TCP_KEEPINTVL": 257}, [(6, 257, 20)]),
    ],
    ids=["none", "macOS", "only one"],
)
def test_what_the_system_has_no_name_for_is_left_out(
    names: dict[str, int], told: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "socket", SimpleNamespace(**BARE, **names))
    assert keepalive_options(idle_s=60, interval_s=20, count=3) == [(1, 2, 1), *told]
