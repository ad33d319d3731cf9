"""The interpreter for Spark's Python processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from ottla.pipeline.interpreter import quick_interpreter

HOME = Path(pyspark.__file__).parent
ARCHIVES = [str(path) for path in sorted((HOME / "python" / "lib").glob("*.zip"), reverse=True)]
SHOWN = "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH']); print(sys.argv[1:])"


@pytest.mark.parametrize("others", [[], ["/opt/jobs", "/opt/more jobs"]])
def test_it_is_this_one_without_sparks_archives(others: list[str]) -> None:
    path = os.pathsep.join(ARCHIVES + others)
    done = subprocess.run(
        [quick_interpreter(), "-c", SHOWN, "two words"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [sys.executable, os.pathsep.join(others), "['two words']"]


def test_it_finds_pyspark_where_it_is_compiled() -> None:
    """Spark's own way, `-m` and a module; py4j as well."""
    assert len(ARCHIVES) == 2
    shown = "import pyspark.util, py4j.java_gateway; print(pyspark.util.__cached__, py4j.java_gateway.__cached__)"
    done = subprocess.run(
        [quick_interpreter(), "-c", shown],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(ARCHIVES)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(Path(name).suffix == ".pyc" and ".zip" not in name for name in done.stdout.split())


def test_it_goes_with_its_process() -> None:
    code = "from ottla.pipeline.interpreter import quick_interpreter; print(quick_interpreter())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).parent.exists()
