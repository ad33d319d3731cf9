"""When others may run is decided by time, in `runtime/time_slice.py`, and not by a number of each file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.rooms import LOOPS, ROOT, sources

#: How a number is called after which others may run: so many at once, a step or slice of so many, so many a turn.
SLICING: Final = re.compile(
    r"(?<![A-Z])(AT_ONCE|AT_A_TIME|A_STEP|STEP|SLICE|A_TURN|PER_TURN|A_LOOK|SCAN_BATCH|CHUNK)(?![A-Z])"
)
#: Numbers of bytes are limits of a single call, which no clock could end.
LIMITS: Final = re.compile(r"BYTES|SECONDS|CHARACTERS")
#: `number % 64 == 0` and `number & 127`, without even a name.
COUNTED: Final = re.compile(
    r"\b(number|index|count|position|walked|i)\b (%|& ) ?\d+ == 0|not \w+ % \d+\b|\w+ & \(?\d+\)? == \d+:"
)

#: Those that there are, and why time does not do.
ALLOWED: Final[dict[str, str]] = {
    "kproto/compiler/layout.py STEP_ELEMENTS": "kproto knows no clocks: who runs its steps looks at one between them",
    "runtime/time_slice.py CHUNK_ELEMENTS": "the one for what takes less than a look at the clock",
    "server/apis/context.py _ENCODED_AT_ONCE_ELEMENTS": "an answer of fewer is encoded by one call, others in steps",
    "server/network/connection.py _SERVED_AT_ONCE": "fairness: requests until it is another connection's turn",
    "server/network/io_wait.py EVENTS_AT_ONCE": "events that one call of epoll returns",
    "server/network/large_requests.py _STEP": "objects that are freed by one statement, which no clock could end",
    "server/network/receiver.py _MAX_TAKEN_AT_ONCE": "fairness: frames until it is another connection's turn",
    "storage/turn.py _ANSWERED_AT_ONCE": "every request pays for the end of a turn: no clock for each answer",
}


def numbers(source: str) -> Iterator[str]:
    """The constants of a module that are numbers."""
    for node in ast.parse(source).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or value is None:
            continue
        if (
            all(isinstance(it, ast.Constant | ast.BinOp | ast.operator) for it in ast.walk(value))
            and target.id.isupper()
        ):
            yield target.id


def slicing(source: str) -> list[str]:
    """What of a module says after how many elements others may run."""
    named = [name for name in numbers(source) if SLICING.search(name) and not LIMITS.search(name)]
    return named + [line.strip() for line in source.splitlines() if COUNTED.search(line)]


def test_a_slice_by_number_is_found() -> None:
    assert slicing("_LOOKED_AT_ONCE: Final = 64\n_STEP = 2 * 64\nSLICE_BYTES = 1 << 20\n_STEPS = 3\n") == [
        "_LOOKED_AT_ONCE",
        "_STEP",
    ]
    assert slicing("for number, it in enumerate(all):\n    if number % 64 == 0:\n        if not number % 8: yield") == [
        "if number % 64 == 0:",
        "if not number % 8: yield",
    ]
    assert slicing("STEP = re.compile('x')\nis_odd = size % 2 == 1\n") == []


def test_others_run_after_a_time_and_not_after_a_number() -> None:
    found = {f"{path.relative_to(ROOT)} {name}" for path in sources(*LOOPS) for name in slicing(Path(path).read_text())}
    assert found == ALLOWED.keys()
