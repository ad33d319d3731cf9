"""`make attack`: every attack on a broker of its own, and a table of what an honest client and the machine suffered.

`python -m tests.attack [WORD…]` runs those whose names hold a word.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .attacks import ATTACKS, EVERY_API
from .stage import BUDGETS_MIB, suffer

ALLOWED_MIB = BUDGETS_MIB + 150


def main() -> None:
    words = [word.lower() for word in sys.argv[1:]]
    print(
        f"memory: budgets of {BUDGETS_MIB} MiB and 150 more are allowed; times in ms;\n"
        "holds of more than 20 ms, and the longest by wall clock and by CPU"
    )
    print(
        f"{'attack':72} {'s':>5} {'peak MiB':>8} {'metadata p99':>12} {'produce p99':>11} {'longest':>8} "
        f"{'holds':>5} {'hold':>7} {'CPU':>6}"
    )
    failed = 0
    for name, attack in {**ATTACKS, **EVERY_API}.items():
        if words and not any(word in name.lower() for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                it = suffer(attack, Path(folder))
            except Exception as error:  # noqa: BLE001 - the other attacks go on
                failed += 1
                print(f"{name:72} {error!r}", flush=True)
                continue
        wrong = []
        if it.peak_mib > ALLOWED_MIB:
            wrong.append("memory")
        if it.honest_error:
            wrong.append(it.honest_error)
        if it.tracebacks:
            wrong.append(f"{it.tracebacks} tracebacks")
        failed += bool(wrong)
        print(
            f"{name:72} {it.seconds:5.1f} {it.peak_mib:8.0f} {it.metadata_ms:12.1f} {it.produce_ms:11.1f} "
            f"{it.longest_ms:8.0f} {it.holds:5} {it.longest_hold_ms:7.1f} {it.longest_cpu_ms:6.1f} "
            f"{it.holders if it.longest_cpu_ms > 20 else ''} {'; '.join(wrong)}",
            flush=True,
        )
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    main()
