"""What small requests are compared with, and how that is written."""

from __future__ import annotations

import socket

from benchmarks.floor import Slice, answer_bytes, bare_loop, head, row
from ottla.client.addresses import parse_address


def test_the_bare_loop_answers_a_request_that_comes_in_parts_and_outlives_a_peer() -> None:
    request = (6).to_bytes(4, "big") + b"abcdef"
    with bare_loop(5, 7) as server:
        assert answer_bytes(server, request) == 7
        with socket.create_connection(parse_address(server.bootstrap)) as client, client.makefile("rb") as answers:
            for number in range(len(request)):
                client.sendall(request[number : number + 1])
            assert answers.read(11) == (7).to_bytes(4, "big") + bytes(7)


def test_a_row_has_medians_and_the_medians_of_the_rounds_ratios() -> None:
    ottla = [Slice(100, 10, 0.25), Slice(300, 30, 0.25), Slice(200, 20, 0.5)]
    floor = [Slice(400, 5, 0.75), Slice(300, 10, 0.75), Slice(100, 40, 0.75)]
    slices = {"ottla": ottla, "floor": floor}
    figures = row("Produce", 10, slices).split(" | ")[1:]
    assert figures == ["20.0", "25%", "200", "10.0", "75%", "300", "2.00", "1.00 |"]
    assert head(list(slices)).splitlines()[1].count("---") == 1 + len(figures)
