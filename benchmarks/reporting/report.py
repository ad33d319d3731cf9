"""The generated part of docs/performance.md: the targets first, then every workload, all of it from the results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.reporting import summary, tables, targets
from benchmarks.reporting.pages import put_between_marks
from benchmarks.reporting.results import Machine, Results, machine

__all__ = ["MARK", "PAGE", "README", "about", "every_table", "generated", "machine", "write_pages"]

PAGE: Final = Path("docs/performance.md")
README: Final = Path("README.md")
MARK: Final = "benchmarks"
_RUNS: Final = 3


def write_pages(results: Results) -> None:
    """Replace what is between the marks of the page, and the table of README.md."""
    put_between_marks(PAGE, MARK, generated(results))
    put_between_marks(README, MARK, summary.table(results))


def generated(results: Results) -> str:
    """The text between the marks."""
    parts = [
        about(results),
        f"### What was aimed at\n\n{targets.table(results)}",
        "### Every workload\n\nEach figure as the ratio of the two, and in brackets Ottla's median and Apache Kafka's. "
        "A ratio above 1 means that Ottla is ahead. CPU is the broker's; resident is at the end of the run.",
        every_table(results),
    ]
    return "\n\n".join(parts)


def about(results: Results) -> str:
    """How, where and when it was measured, and which workloads had fewer runs than the rule asks for."""
    often = min(_RUNS, max((result.pairs for result in results.values()), default=0))
    seldom = [name for name, result in results.items() if result.pairs < often]
    fewer = f"\nFewer runs, so less certain: {'; '.join(seldom)}." if seldom else ""
    dates = sorted({result.date for result in results.values()})
    machines = list({_machine(result.machine): None for result in results.values()})
    return (
        f"`python -m benchmarks`, medians of {often} alternating runs and more on {', and on '.join(machines)}; "
        f"measured {' to '.join(dict.fromkeys((dates[0], dates[-1]))) if dates else 'never'}.{fewer}"
    )


def every_table(results: Results) -> str:
    """The tables of what was run, each under its title."""
    return "\n\n".join(_tables(results))


def _tables(results: Results) -> Iterator[str]:
    for each in tables.TABLES:
        if lines := tables.compact(each, results):
            yield f"**{each.title}**\n\n{lines}"
    if held := tables.holds(results):
        yield (
            "**Holds of Ottla's event loop**: steps of a task of 0.5 ms and longer, in a run of its own under py-spy. "
            f"What is not CPU is waiting for one of the machine's cores, or for the disk. "
            f"Stacks are in `benchmarks/results/profiles/`.\n\n{held}"
        )


def _machine(machine: Machine) -> str:
    return (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
        f"Python {machine['python']}"
    )
