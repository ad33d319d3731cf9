"""Brokers with tiered storage: Ottla with an object store, and Apache Kafka with a folder (`FolderTier.java`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from compat_tests import java
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker

__all__ = ["ONLY_THE_END", "tiered_kafka", "tiered_ottla"]

ONLY_THE_END: Final[Mapping[str, str]] = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "segment.bytes": "1048576",
}
"""Of a tiered topic: the disk keeps no segment that may go."""

_QUICK: Final[Mapping[str, str]] = {
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "300",
}
_PLUG_INS: Final = Path(java.__file__).parent / "FolderTier.java"


def tiered_ottla(folder: Path, *, url: str | None = None, overrides: Mapping[str, str] | None = None) -> OttlaBroker:
    """Without an address the object store is a folder beside that of the broker."""
    if url is None:
        (folder / "remote").mkdir(parents=True)
        url = f"file://{folder / 'remote'}"
    return OttlaBroker(folder / "broker", overrides={**_QUICK, "ottla.remote.url": url, **(overrides or {})})


def tiered_kafka(folder: Path) -> ApacheKafka:
    """Needs javac."""
    (folder / "remote").mkdir(parents=True)
    metadata = "rlmm.config.remote.log.metadata.topic"
    settings = {
        **_QUICK,
        "log.initial.task.delay.ms": "300",
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": _PLUG_INS.stem,
        "rsm.config.folder": str(folder / "remote"),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        f"{metadata}.replication.factor": "1",
        f"{metadata}.num.partitions": "1",
    }
    return ApacheKafka(folder / "broker", overrides=settings, classes=java.compiled(_PLUG_INS), jvm_options=java.QUICK)
