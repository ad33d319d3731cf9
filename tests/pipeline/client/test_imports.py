"""Executors load the client for each task: it brings nothing along that reading does not need."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
import ottla.pipeline.client, ottla.pipeline.client.producer
print(*sorted(name for name in sys.modules if name.split(".")[0] in {"trio", "pyspark", "construct", "ottla"}))
"""


def test_neither_the_broker_nor_trio_nor_spark() -> None:
    loaded = subprocess.run([sys.executable, "-c", _CODE], check=True, capture_output=True, text=True).stdout.split()
    rooms = {".".join(name.split(".")[:2]) for name in loaded}
    assert rooms == {"ottla", "ottla.client", "ottla.kproto", "ottla.pipeline"}
