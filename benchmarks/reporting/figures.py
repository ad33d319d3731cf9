"""How figures are compared and written."""

from __future__ import annotations

from benchmarks.workloads import LOWER_IS_BETTER


def better(figure: str, ours: float, theirs: float) -> float:
    """How many times as good as Apache Kafka Ottla is in a figure, whether more or less of it is better."""
    return theirs / ours if figure.endswith(LOWER_IS_BETTER) else ours / theirs


def times_as_good(figure: str, ours: float | None, theirs: float | None) -> str:
    """`better` as it is written; empty where one of the two was not measured."""
    return f"{better(figure, ours, theirs):.2f}×" if ours and theirs else ""  # noqa: RUF001


def shown(value: float | None) -> str:
    """With about three significant digits; empty for what was not measured."""
    if value is None:
        return ""
    digits = next((digits for digits, least in enumerate((100, 10, 0)) if value >= least), 2)
    return f"{value:,.{digits}f}"
