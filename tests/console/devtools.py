"""A headless Chromium that a test drives: pages are opened, looked at and used as a person would."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--disable-background-networking",
    "--hide-scrollbars", "--no-first-run",
)  # fmt: skip
DESKTOP = (1280, 860)
PHONE = (390, 844)


class Tab:
    """One page of the browser, driven over the DevTools protocol."""

    def __init__(self, reads: trio.abc.ReceiveStream, writes: trio.abc.SendStream) -> None:
        self._reads = reads
        self._writes = writes
        self._received = b""
        self._last_id = 0
        self._session: str | None = None
        self._is_loaded = False
        #: What the page has logged, and what it was refused.
        self.log: list[str] = []

    async def attach(self) -> None:
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")

    async def open(self, url: str, *, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        """Load a page and wait until its scripts have run."""
        width, height = size
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=size == PHONE,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._is_loaded = False
        answer = await self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        with trio.fail_after(30):
            while not self._is_loaded:
                self._note(await self._receive())

    async def evaluate(self, expression: str) -> Any:
        """What an expression is in the page."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait for something to be so in the page, or in the one that follows it."""
        look = f"const look = () => ({expression}) ? done(true) : setTimeout(look, 20)"
        with trio.fail_after(30):
            while True:
                answer = await self.call(
                    "Runtime.evaluate",
                    expression=f"new Promise(done => {{ {look}; look(); }})",
                    awaitPromise=True,
                    or_error=True,
                )
                if answer is not None:  # else the page was left meanwhile
                    assert "exceptionDetails" not in answer, answer["exceptionDetails"]
                    return

    async def screenshot(self, target: Path) -> None:
        answer = await self.call("Page.captureScreenshot", format="png")
        await trio.Path(target).write_bytes(b64decode(answer["data"]))

    async def call(self, method: str, *, or_error: bool = False, **params: Any) -> Any:
        self._last_id += 1
        request: dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if self._session is not None:
            request["sessionId"] = self._session
        await self._writes.send_all(json.dumps(request).encode() + b"\0")
        while (message := await self._receive()).get("id") != self._last_id:
            self._note(message)
        assert or_error or "error" not in message, message
        return message.get("result")

    def _note(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Page.loadEventFired":
                self._is_loaded = True
            case "Log.entryAdded":
                self.log.append(event["params"]["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.log.append(str(event["params"]["exceptionDetails"]))

    async def _receive(self) -> Any:
        while b"\0" not in self._received:
            data = await self._reads.receive_some()
            assert data, "the browser has ended"
            self._received += data
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Tab]:
    """A browser with a profile of its own in a folder; skips the test where there is none."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    from_us, to_us = os.pipe(), os.pipe()
    # The browser reads commands from descriptor 3 and writes answers to 4.
    command = ["bash", "-c", f'exec "$@" 3<&{from_us[0]} 4>&{to_us[1]}', "bash", CHROMIUM, *FLAGS]
    async with trio.open_nursery() as nursery:
        run = partial(
            trio.run_process,
            [*command, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(from_us[0], to_us[1]),
            capture_stderr=True,
            check=False,
        )
        process = await nursery.start(run)
        os.close(from_us[0])
        os.close(to_us[1])
        async with trio.lowlevel.FdStream(to_us[0]) as reads, trio.lowlevel.FdStream(from_us[1]) as writes:
            try:
                tab = Tab(reads, writes)
                with trio.fail_after(60):
                    await tab.attach()
                yield tab
            finally:
                process.terminate()
