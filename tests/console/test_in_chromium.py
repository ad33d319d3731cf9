"""The console in headless Chromium: pages lay out, scripts run, the policy blocks nothing. `make test-console`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.kproto.records import Record, build_batch
from ottla.server.replica.append import Records, TopicIdPartition

pytestmark = [pytest.mark.chromium, pytest.mark.timeout(300)]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE = "390,844"
SETTINGS = {"ottla.http.listen": "127.0.0.1:0", "ottla.console.enable": "true"}

Serve = Callable[..., Any]


async def chromium(url: str, folder: Path, *arguments: str) -> tuple[str, str]:
    """Open a page; returns what was asked for on stdout, and the browser's log."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions",
        "--disable-background-networking", "--hide-scrollbars", "--enable-logging=stderr",
        f"--user-data-dir={folder}", "--virtual-time-budget=2000", *arguments, url,
    ]  # fmt: skip
    with trio.fail_after(120):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    return done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    "path", ["", "topics", "topics/t", "topics/t/messages", "topics/t/produce", "groups", "settings"]
)
async def test_pages_run_their_script_and_break_no_rule(serve_node: Serve, tmp_path: Path, path: str) -> None:
    async with serve_node(SETTINGS, data_dir=tmp_path / "data") as node:
        await node.create_topic("t", partitions=3)
        html, log = await chromium(f"{node.http_url}/console/{path}", tmp_path / "profile", "--dump-dom")
    assert re.search(r'<html[^>]* class="js"', html)
    assert "Content Security Policy" not in log
    assert "Uncaught" not in log


async def test_a_phone_shows_all_without_scrolling_sideways(serve_node: Serve, tmp_path: Path) -> None:
    async with serve_node(SETTINGS, data_dir=tmp_path / "data") as node:
        await node.create_topic("a-topic-with-a-rather-long-name-that-nobody-would-choose-" + "x" * 80)
        shot = tmp_path / "shot.png"
        await chromium(
            f"{node.http_url}/console/topics", tmp_path / "profile", f"--window-size={PHONE}", f"--screenshot={shot}"
        )
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert shot.stat().st_size > 5_000


async def test_hostile_messages_run_nothing(serve_node: Serve, tmp_path: Path) -> None:
    attack = b"<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    async with serve_node(SETTINGS, data_dir=tmp_path / "data") as node:
        topic_id = await node.create_topic("t")
        batch = build_batch([Record(key=attack, value=attack, headers=[("h", attack)])])
        await node.broker.replica_manager.append(
            {TopicIdPartition(topic_id, 0): Records(memoryview(bytearray(batch)))}, required_acks=1, timeout_ms=10_000
        )
        for path in ("topics/t/messages", "topics/t/messages/0/0"):
            html, _ = await chromium(f"{node.http_url}/console/{path}", tmp_path / "profile", "--dump-dom")
            assert "<title>owned" not in html
            assert "&lt;script&gt;" in html
