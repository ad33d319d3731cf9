"""Other sites: forged hosts, forged forms, and names and messages that are written to break out of the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.console.printable import printable
from ottla.kproto.records import Record

Browse = Callable[..., Any]

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;\u202e\x00{{ 7*7 }}{% raw %}"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("[::1]:8080", 200),
        ("192.0.2.7", 200),
        ("console.example.org:8080", 200),
        ("evil.example.com", 421),
        ("127.0.0.1.evil.example.com", 421),
        ("localhost.evil.example.com", 421),
        ("", 421),
    ],
)
async def test_only_known_names_are_answered(browse: Browse, host: str, status: int) -> None:
    async with browse({"ottla.console.allowed.hosts": "Console.example.org"}) as browser:
        assert (await browser.http.get("/console/", headers={"host": host})).status_code == status


async def test_every_answer_has_the_security_headers(browse: Browse) -> None:
    async with browse() as browser:
        for path in ("", "topics", "nothing", "static/console.css", "topics/none/live"):
            headers = (await browser.http.get(f"/console/{path}")).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"


async def test_a_form_needs_its_token_and_the_same_origin(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        log = browser.node.broker.replica_manager.get_partition(topic_id, 0).log
        token = await browser.form_token("topics/t/produce")
        good = {"token": token, "value": "x"}
        path = "topics/t/produce"
        assert (await browser.post(path, {"value": "x"})).status_code == 403
        assert (await browser.post(path, {"token": "0" * 64, "value": "x"})).status_code == 403
        assert (await browser.post(path, good, origin="http://evil.example.com")).status_code == 403
        assert (await browser.post(path, good, origin="null")).status_code == 403
        assert (await browser.post(path, good, **{"sec-fetch-site": "cross-site"})).status_code == 403
        assert (await browser.post(path, good, **{"content-type": "text/plain"})).status_code == 415
        cookies = dict(browser.http.cookies)
        browser.http.cookies.clear()
        assert (await browser.post(path, good)).status_code == 403
        assert log.log_end_offset == 0
        browser.http.cookies.update(cookies)
        answer = await browser.post(path, good, origin="http://127.0.0.1:8080")
        assert answer.status_code == 303
        assert log.log_end_offset == 1


async def test_a_get_changes_nothing(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        token = await browser.form_token("topics/t/produce")
        await browser.get("topics/t/produce", token=token, value="x")
        assert browser.node.broker.replica_manager.get_partition(topic_id, 0).log.log_end_offset == 0
        assert (await browser.http.get("/console/theme")).status_code == 404


@pytest.mark.parametrize(
    "back", ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "", "/console/\\x"]
)
async def test_the_theme_form_leads_nowhere_else(browse: Browse, back: str) -> None:
    async with browse() as browser:
        token = await browser.form_token()
        answer = await browser.post("theme", {"token": token, "theme": "dark", "back": back})
        assert answer.headers["location"] == "/console/"


async def test_nothing_that_clients_write_becomes_markup(browse: Browse) -> None:
    async with browse() as browser:
        topic_id = await browser.node.create_topic("t")
        raw = HOSTILE.encode()
        await browser.produce(
            topic_id,
            0,
            Record(key=raw, value=raw, headers=[(HOSTILE, raw)]),
            Record(key=b"\xff\xfe\x00", value=b"\xff" * 40),
            Record(key=b"", value=b'{"<script>": "</script><script>"}'),
        )
        pages = [
            await browser.get("topics/t/messages", format=shown) for shown in ("auto", "text", "json", "avro", "hex")
        ]
        pages += [await browser.get(f"topics/t/messages/0/{offset}", format="text") for offset in range(3)]
        pages += [
            await browser.get(path, **{name: HOSTILE})
            for path, name in (
                ("topics", "q"),
                ("groups", "q"),
                ("group", "id"),
                ("transactions", "q"),
                ("settings", "q"),
                ("topics/t/messages", "key"),
                ("topics/t/messages", "contains"),
                ("topics/t/messages", "time"),
                ("topics/t/messages", "at"),
                ("topics/t/messages", "partition"),
                ("topics/t/messages", "offset"),
                ("topics", "after"),
                ("topics/t", "first"),
            )
        ]
        pages.append(await browser.get("topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E"))
        for page in pages:
            assert page.status in (200, 404)
            assert [each.get("src", "").partition("?")[0] for each in page.all("script")] == [
                "/console/static/console.js"
            ]
            assert not page.all("img")
            assert "\x00" not in page.html
            assert "\u202e" not in page.html
            assert not [name for _, each in page.elements for name in each if name.startswith("on")]


def test_what_cannot_be_seen_is_named() -> None:
    assert printable("a\x00b\x7f\u202eevil\ud800\r\n\t\u200b") == "a␀b␡⟨U+202E⟩evil⟨U+D800⟩␍\n\t⟨U+200B⟩"


async def test_odd_numbers_in_addresses_are_harmless(browse: Browse) -> None:
    async with browse() as browser:
        await browser.node.create_topic("t")
        for value in ("-1", "9" * 40, "1e9", "٣", "0x10", " 1 ", "-9223372036854775808"):
            for name in ("first", "partition", "offset", "at"):
                assert (await browser.get("topics/t/messages", start="offset", **{name: value})).status == 200
                assert (await browser.get("topics/t", **{name: value})).status == 200
        for offset in ("9" * 23, "9" * 5000, "-1", "x", "٣"):
            assert (await browser.get(f"topics/t/messages/0/{offset}")).status == 404
            assert (await browser.get(f"topics/t/messages/{offset}/0")).status == 404
