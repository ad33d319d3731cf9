"""Load through librdkafka: the client whose cost per record is low enough to show the broker's. See bench.c."""

from pathlib import Path

from benchmarks.measuring.c_program import CProgram, MissingToolError

__all__ = ["MissingToolError", "build", "result", "run", "start"]

_PROGRAM = CProgram(Path(__file__).with_name("bench.c"), "rdkafka")
build = _PROGRAM.build
start = _PROGRAM.start
result = _PROGRAM.result
run = _PROGRAM.run
