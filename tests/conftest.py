"""What holds for every test: no example is failed for being slow, and what is started heeds signals."""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("ottla", settings.default, deadline=None)
settings.load_profile("ottla")


def pytest_configure() -> None:
    """Where tests run in the background (`nohup`, a script's `&`) signals are ignored, by what they start as well."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
