"""The Python processes that Spark starts beside itself: which interpreter they have, and where they find code.

A local Spark puts an archive of PySpark's sources before everything else on their path, so that each process compiles
what it imports again: over a second of CPU, of the ten seconds that Spark waits for it. Where PySpark was installed by
pip, the same modules lie compiled beside.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark import SparkContext, SparkFiles

__all__ = ["quick_interpreter", "share_shipped_code"]

_SCRIPT: Final = """#!/bin/sh
path="$PYTHONPATH:"
path="${{path#*/pyspark.zip:}}"
path="${{path#*/py4j-*-src.zip:}}"
PYTHONPATH="${{path%:}}" exec {python} "$@"
"""


def quick_interpreter(python: str | Path = sys.executable) -> str:
    """An executable that starts Python without Spark's archives; it is there as long as this process.

    For `PYSPARK_PYTHON`, and for a Spark of this machine that was installed by pip beside that Python.
    """
    folder = Path(tempfile.mkdtemp(prefix="ottla-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "python"
    program.write_text(_SCRIPT.format(python=shlex.quote(str(python))))
    program.chmod(0o700)
    return str(program)


def share_shipped_code(context: SparkContext) -> None:
    """Let the processes that plan streams on the driver find what `--py-files` shipped; before a source is registered.

    Spark looks for it in a folder of the stream's own session, where it is not.
    """
    held = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    shipped = [os.path.join(SparkFiles.getRootDirectory(), name) for name in context._python_includes or ()]  # noqa: SLF001
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys([*held, *shipped])))
