"""What holds for every test: no example is failed for being slow, and what is started heeds signals."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import settings

settings.register_profile("ottla", settings.default, deadline=None)
settings.load_profile("ottla")


def pytest_configure() -> None:
    """Where tests run in the background (`nohup`, a script's `&`) signals are ignored, by what they start as well."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A clock that stands still for whole files. pytest-trio takes one from a test's own arguments alone."""
    for item in items:
        if item.get_closest_marker("frozen_clock") is not None:
            item.add_marker(pytest.mark.trio(run=_run_without_time))


def _run_without_time(function: Callable[[], Awaitable[Any]], **options: Any) -> Any:
    return trio.run(function, **options | {"clock": options.get("clock") or trio.testing.MockClock()})


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 8 MiB."""
    libc = ctypes.CDLL(None, use_errno=True)
    where = tmp_path / "small"
    where.mkdir()
    if libc.mount(b"tmpfs", str(where).encode(), b"tmpfs", 0, b"size=8m"):
        pytest.skip(f"a file system cannot be mounted: {os.strerror(ctypes.get_errno())}")
    yield where
    libc.umount2(str(where).encode(), 2)
