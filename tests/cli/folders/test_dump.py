"""`ottla dump --json`: everything in a data file, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import trio

from ottla.cli import main
from ottla.kproto.records import Record, build_batch
from ottla.storage.clock import SystemClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.log_manager import LogManager


async def _fill(data_dir: Path) -> str:
    manager = LogManager(RealDisk(), data_dir, StorageConfig(), SystemClock(), node_id=1)
    async with manager.run():
        log = await manager.open_log(UUID(int=7), "orders", 0, LogConfig())
        batch = build_batch([Record(key=b"k", value=b"\xff", timestamp_ms=5, headers=(("h", b"v"),))])
        log.append_as_leader(memoryview(bytearray(batch)), None, leader_epoch=0, now_ms=1)
        await log.flush()
        return log.store.files.directory


def test_every_level_is_json(tmp_path: Path, capsys: Any) -> None:
    folder = trio.run(_fill, tmp_path)
    assert main(["dump", "--json", "--show", "records", folder]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["type"] for item in items] == ["segment", "block", "run", "batch", "record"]
    assert len(bytes.fromhex(items[0]["boot_tag"])) == 12
    assert items[-1]["key"] == "k"
    assert items[-1]["headers"] == [["h", "v"]]


def test_a_file_that_is_not_there_is_said(tmp_path: Path, capsys: Any) -> None:
    assert main(["dump", str(tmp_path / "none.data")]) == 1
    assert capsys.readouterr().err == f"ottla dump: cannot read {tmp_path}/none.data: No such file or directory\n"
