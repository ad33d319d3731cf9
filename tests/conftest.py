"""What holds for every test: no example is failed for being slow, and what is started heeds signals."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Final

import pytest
import trio
import trio.testing
from hypothesis import settings

from tests.clocks import OwnTimeClock

settings.register_profile("ottla", settings.default, deadline=None)
settings.load_profile("ottla")

LONG: Final = (
    "test_coordinators.py",
    "test_group.py",
    "test_upgrade.py",
    "test_backup.py",
    "test_spark.py",
    "test_attacks.py",
    "test_backup_etcd.py",
    "test_planted_faults.py",
    "test_distributions.py",
    "test_storage.py",
    "test_serve_nodes.py",
    "test_group_kinds.py",
    "test_running.py",
    "test_operations_page.py",
    "test_mirror.py",
    "test_doctor.py",
    "test_move_metadata.py",
    "test_serve_etcd.py",
)
"""Few tests that take long, the longest first: whoever of several workers begins with one last lets the others wait."""


def pytest_configure() -> None:
    """Where tests run in the background (`nohup`, a script's `&`) signals are ignored, by what they start as well."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a worker waits for a third of its time, for processes and for clocks."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A clock for each test on Trio that takes none in its own arguments: one that stands still for `frozen_clock`, and
    otherwise one that does not count what other processes take.

    Workers are given the files in the order of their items: long ones first, and then those of many tests.
    """
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)
        place = {name: number for number, name in enumerate(LONG)}
        items.sort(key=lambda item: (place.get(item.path.name, len(LONG)), -tests[item.path], item.path))
    for item in items:
        if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            is_frozen = item.get_closest_marker("frozen_clock") is not None
            item.add_marker(pytest.mark.trio(run=partial(_run, trio.testing.MockClock if is_frozen else OwnTimeClock)))


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
