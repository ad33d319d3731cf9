"""What holds for every test: no example is failed for being slow, and what is started heeds signals."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Generator, Iterator
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import settings

from tests.clocks import OwnTimeClock
from tests.reporting import tell_less
from tests.scheduling import order_of, unit_of

# A run tries the same examples each time, so that what fails is what was changed; `make properties` looks for others.
settings.register_profile("ottla", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile("ottla")


def pytest_configure(config: pytest.Config) -> None:
    """Where tests run in the background (`nohup`, a script's `&`) signals are ignored, by what they start as well."""
    tell_less(config)
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: workers wait for a good part of their time, for clients, processes and clocks."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist=loadfile` a worker is given a whole unit of `scheduling`."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return UnitScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A clock for each test on Trio that takes none in its own arguments: one that stands still for `frozen_clock`, and
    otherwise one that does not count what other processes take.

    Workers are given the files in the order of their items.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=order_of(items))
    for item in items:
        if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            is_frozen = item.get_closest_marker("frozen_clock") is not None
            item.add_marker(pytest.mark.trio(run=partial(_run, trio.testing.MockClock if is_frozen else OwnTimeClock)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected lives as long as the process: no collection of garbage looks at it, then or later.

    To look at it again and again takes a fifth of the time in which each worker collects the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def _run(new_clock: Callable[[], trio.abc.Clock], function: Callable[[], Awaitable[Any]], **options: Any) -> Any:
    return trio.run(function, **options | {"clock": options.get("clock") or new_clock()})


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[logging.Logger]:
    """Logging as it was before: a command that is run within a test sets it up for its whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


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


@pytest.fixture
def without_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between attempts are exactly as long as the test computes them."""
    monkeypatch.setattr("ottla.runtime.backoff.JITTER", 0.0)
