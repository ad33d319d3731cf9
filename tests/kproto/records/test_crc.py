"""CRC-32C by either library: the numbers that the rest of the world computes."""

from __future__ import annotations

import random
import runpy
import sys
from collections.abc import Callable
from typing import Any

import google_crc32c
import pytest

from ottla.kproto.records import crc

Functions = dict[str, Callable[..., Any]]


@pytest.fixture(params=["fastcrc", "google-crc32c"])
def functions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Functions:
    """The module as it is with one of the libraries."""
    if request.param == "fastcrc":
        pytest.importorskip("fastcrc")
    else:
        monkeypatch.setitem(sys.modules, "fastcrc.crc32", None)
    loaded = runpy.run_path(crc.__file__)
    assert ("iscsi" in loaded) == (request.param == "fastcrc")
    return loaded


def test_the_known_answer(functions: Functions) -> None:
    assert functions["value"](b"123456789") == 0xE3069283
    assert functions["value"](b"") == 0


@pytest.mark.parametrize("size_bytes", [1, 60, 16_384, 131_072, 131_073, 1_000_000])
def test_any_part_of_any_buffer_is_summed_in_place(functions: Functions, size_bytes: int) -> None:
    content = random.Random(size_bytes).randbytes(size_bytes + 20)
    expected = google_crc32c.value(content[7 : 7 + size_bytes])

    for buf in (content, bytearray(content), memoryview(bytearray(content))):
        assert functions["crc32c"](buf, 7, 7 + size_bytes) == expected


def test_a_sum_goes_on_where_another_has_ended(functions: Functions) -> None:
    content = random.Random(1).randbytes(300_000)
    extend = functions["extend"]

    assert extend(extend(0, memoryview(content)[:200_001]), content[200_001:]) == google_crc32c.value(content)
