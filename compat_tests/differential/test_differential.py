"""Random histories on Ottla and on Apache Kafka 4.4; `make differential` runs as many as one likes, and shrinks them.

The history of a difference that this finds: `python -m compat_tests.differential --area A --first-seed S --seeds 1`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests import java
from compat_tests.differential.areas import AREAS
from compat_tests.differential.declared import Declared
from compat_tests.differential.open import load_open
from compat_tests.differential.playing.pair import Pair
from compat_tests.differential.playing.session import run_seeds
from compat_tests.differential.run import Run

SEEDS = 20


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    if reason := java.missing():
        pytest.skip(reason)
    with Pair() as pair:
        yield pair


@pytest.mark.differential
@pytest.mark.java
def test_histories_have_no_difference_but_those_that_are_declared_or_known_to_be_open(pair: Pair) -> None:
    run = Run(pair, Declared.load(), known=load_open(), shrinks=False)
    run_seeds(run, list(AREAS), range(SEEDS), workers=6, restart_every=len(AREAS) * SEEDS, timed=False)
    assert run.played > 6 * SEEDS
    assert not run.findings, "\n".join(finding.report() for finding in run.findings.values())
