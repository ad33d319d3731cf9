"""What is read out of a watched broker's log and samples."""

from __future__ import annotations

import json

import pytest

from benchmarks.measuring.profile import digest, longest_hold, longest_holds
from benchmarks.reporting.results import Hold

STACK = '  File "/home/me/ottla/dev/ottla/storage/disk.py", line 3, in pwritev\n    os.pwritev(handle)'

IMPORT = "<frozen importlib._bootstrap>"


def lines(*events: str) -> str:
    return "".join(json.dumps({"level": "warning", "event": event}) + "\n" for event in events)


def held(ms: float, cpu_ms: float, task: str, more: str = "") -> str:
    return f"the loop was held for {ms} ms ({cpu_ms} ms of CPU) by {task}{more}\n{STACK}"


def summed_up(times: int, ms: float, cpu_ms: float) -> str:
    return f"the loop was held {times} times, for at most {ms} ms, of which the CPU worked at most {cpu_ms} ms"


def test_the_longest_hold_is_over_all_lives_of_the_broker() -> None:
    log = lines(summed_up(7, 3.5, 2.5), "stopped in order", summed_up(5, 9.0, 1.5))

    assert longest_hold(log, "") == Hold(12, 9.0, 2.5)


def test_the_longest_hold_by_cpu_is_named() -> None:
    log = lines(
        held(20.0, 0.1, "ottla.server.main.Node.serve"),
        held(
            3.0,
            2.5,
            "ottla.server.network.connection.Connection.serve",
            ", 2.1 ms of it garbage collection; 81 more were not logged",
        ),
        held(1.0, 1.0, "<init>"),
    )

    hold = longest_hold(lines(summed_up(3, 20.0, 2.5)), log)

    assert hold.by == "server.network.connection.Connection.serve, collecting garbage"


def test_a_first_use_of_a_module_is_called_so_and_does_not_hide_the_next() -> None:
    imported = held(28.3, 21.4, "ottla.metadata.controller.Controller.run").replace("storage/disk", IMPORT)
    log = lines(held(2.0, 1.2, "ottla.server.network.listener.Listeners._serve"), imported)

    assert longest_hold(lines(summed_up(2, 28.3, 21.4)), log).by == (
        "metadata.controller.Controller.run, importing; else 1.2 ms, server.network.listener.Listeners._serve"
    )


def test_a_log_without_a_sum_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not say"):
        longest_hold(lines(held(3.0, 2.5, "a")), "")


def test_the_longest_holds_come_with_their_stacks_but_without_the_machines_folders() -> None:
    text = longest_holds("not JSON\n" + lines(*(held(n, n, f"task-{n}") for n in range(1, 9))))

    assert [f"task-{n}" in text for n in (3, 4, 8)] == [False, True, True]
    assert text.index("task-8") < text.index("task-4")
    assert 'File "storage/disk.py", line 3, in pwritev' in text
    assert "/home" not in text


def test_a_digest_counts_functions_by_themselves_and_with_what_they_call() -> None:
    text = digest("run (a.py:1);send (b.py:5) 30\nrun (a.py:2);send (b.py:7);copy (c.py:1) 10\n")

    own, whole = text.split("with what they call")
    assert "75.0 %  send (b.py)" in own
    assert "25.0 %  copy (c.py)" in own
    assert "100.0 %  run (a.py)" in whole
    assert "100.0 %  send (b.py)" in whole


def test_a_digest_leaves_out_the_watchdog() -> None:
    text = digest(
        "run (a.py:1) 10\n"
        "run (a.py:1);before_task_step (watchdog.py:3) 90\n"
        "_watch (watchdog.py:9);wait (threading.py:1) 90\n"
    )

    assert "100.0 %  run (a.py)" in text
    assert "watchdog" not in text


def test_there_may_be_no_samples() -> None:
    assert digest("").startswith("0 samples")
