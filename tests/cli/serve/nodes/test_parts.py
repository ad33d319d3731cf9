"""The parts of `ottla serve --nodes` that need no process."""

from __future__ import annotations

import json
import socket

import pytest

from ottla.cli.serve.nodes.gather import merge
from ottla.cli.serve.nodes.link import Lines, receive, send
from ottla.cli.serve.nodes.restarts import RECOVERED_SECONDS, Restarts


def test_the_first_death_costs_no_time_and_the_next_ones_twice_as_much_each() -> None:
    restarts = Restarts()
    assert [restarts.delay_seconds(1) for _ in range(4)] == [0.0, 0.5, 1.0, 2.0]
    assert restarts.deaths_in_a_row == 4
    assert max(restarts.delay_seconds(1) for _ in range(100)) == 30.0


def test_who_has_served_for_a_while_dies_for_the_first_time_again() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.delay_seconds(1)
    assert restarts.delay_seconds(RECOVERED_SECONDS) == 0.0
    assert restarts.deaths_in_a_row == 1
    assert restarts.total == 6


def test_families_of_several_pages_are_put_together() -> None:
    first = '# HELP up Is it.\n# TYPE up gauge\nup 1\n# TYPE t histogram\nt_bucket{le="1"} 2\nt_sum 0.5\nt_count 2\n'
    second = '# HELP up Is it.\n# TYPE up gauge\nup 0\n# TYPE other gauge\nother{a="x y{",b="2"} 7\n'
    assert list(merge({1: first, 12: second})) == [
        "# HELP up Is it.",
        "# TYPE up gauge",
        'up{node="1"} 1',
        'up{node="12"} 0',
        "# TYPE t histogram",
        't_bucket{node="1",le="1"} 2',
        't_sum{node="1"} 0.5',
        't_count{node="1"} 2',
        "# TYPE other gauge",
        'other{node="12",a="x y{",b="2"} 7',
    ]


def test_messages_come_whole_however_they_are_cut() -> None:
    text = b"".join(json.dumps({"number": number}).encode() + b"\n" for number in range(3))
    lines = Lines()
    heard = [message for byte in text for message in lines.feed(bytes([byte]))]
    assert heard == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_a_message_without_an_end_is_not_kept_for_ever() -> None:
    lines = Lines()
    for _ in range(16):
        assert lines.feed(b"x" * 65_536) == []
    with pytest.raises(ValueError, match="without an end"):
        lines.feed(b"x")


def test_the_end_of_the_other_side_is_not_silence() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        lines = Lines()
        assert receive(ours, lines) == []
        send(theirs, {"event": "ready"})
        assert receive(ours, lines) == [{"event": "ready"}]
        theirs.close()
        assert receive(ours, lines) is None
        send(ours, {"do": "stop"})  # nobody hears it, and nothing happens
