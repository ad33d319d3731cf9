"""What a worker tells the process that gathers the results. All of it, of thousands of tests, would keep both busy.

Of a test that passes the outcome is told, and not that it begins, that its fixtures were made, and that they ended.
"""

from __future__ import annotations

from typing import Any, Protocol

import pytest


class Interactor(Protocol):
    """xdist's plugin in a worker."""

    def sendevent(self, name: str, **values: Any) -> None: ...


def tell_less(config: pytest.Config) -> None:
    """In a worker, unless somebody asks how long fixtures take."""
    is_timed = config.getoption("durations") is not None or config.getoption("xmlpath") is not None
    if is_timed or not hasattr(config, "workerinput"):
        return
    for plugin in config.pluginmanager.get_plugins():
        # The module that runs in a worker is no import of xdist.remote, so its class is another one.
        if type(plugin).__name__ == "WorkerInteractor":
            send_what_matters(plugin)


def send_what_matters(interactor: Interactor) -> None:
    send_all = interactor.sendevent

    def send(name: str, **values: Any) -> None:
        if name != "logstart" and not (name == "testreport" and _is_expected(values["data"])):
            send_all(name, **values)

    interactor.sendevent = send  # type: ignore[method-assign]


def _is_expected(report: dict[str, Any]) -> bool:
    return report["when"] != "call" and report["outcome"] == "passed" and not report["sections"]
