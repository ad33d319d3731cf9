"""`ottla salvage`: what a start had to set aside is not lost: its sound records can be looked at and sent again."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import trio

from ottla.cli import main
from ottla.client.recording import parse_recording
from ottla.kproto.records import Record, build_batch
from ottla.storage.clock import SystemClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.log_manager import LogManager

COUNT = 30


def fill_and_damage(data_dir: Path) -> Path:
    """One batch a block, of two partitions; the sixth block is damaged, and a start cuts the file before it."""
    folder = trio.run(_fill, data_dir)
    (path,) = folder.glob("*.data")
    content = bytearray(path.read_bytes())
    block = (len(content) - 64) // COUNT
    content[64 + 5 * block + 50] ^= 1
    path.write_bytes(bytes(content))
    for name in ("checkpoint", path.with_suffix(".index").name):
        (folder / name).unlink()
    trio.run(_start, data_dir)
    (cut,) = folder.glob("*.cut-*")
    return cut


async def _fill(data_dir: Path) -> Path:
    manager = LogManager(RealDisk(), data_dir, StorageConfig(), SystemClock(), node_id=1)
    async with manager.run():
        logs = [await manager.open_log(UUID(int=7), "orders", partition, LogConfig()) for partition in range(2)]
        for number in range(COUNT):
            batch = build_batch([Record(key=b"k", value=b"%d" % number, timestamp_ms=5, headers=(("h", b"\xff"),))])
            logs[number % 2].append_as_leader(memoryview(bytearray(batch)), None, leader_epoch=0, now_ms=1)
            await logs[number % 2].flush()
        return Path(logs[0].store.files.directory)


class _AfterPowerCut(RealDisk):
    """What is not sound may have been torn, so that nothing behind it counts."""

    def boot_id(self) -> str:
        return "another boot"


async def _start(data_dir: Path) -> None:
    manager = LogManager(_AfterPowerCut(), data_dir, StorageConfig(), SystemClock(), node_id=1)
    async with manager.run():
        log = await manager.open_log(UUID(int=7), "orders", 0, LogConfig())
        assert log.log_end_offset == 3


def test_what_was_set_aside_becomes_a_recording(tmp_path: Path, capsys: Any) -> None:
    cut = fill_and_damage(tmp_path / "data")
    assert main(["salvage", str(cut)]) == 0
    assert capsys.readouterr().out == "orders-0: 12 records, offsets 3 to 14\norders-1: 12 records, offsets 3 to 14\n"
    target = tmp_path / "recording"
    assert main(["salvage", str(cut), "--to", str(target)]) == 0
    assert "24 records" in capsys.readouterr().err
    with target.open("rb") as file:
        recording = parse_recording(file)
        entries = list(recording.entries)
    assert recording.topics == {"orders": 2}
    assert [entry.record.value for entry in entries] == [b"%d" % number for number in range(6, COUNT)]
    assert {(entry.record.key, entry.record.timestamp_ms) for entry in entries} == {(b"k", 5)}
    assert list(entries[0].record.headers) == [("h", b"\xff")]
    # What is there is not written over.
    assert main(["salvage", str(cut), "--to", str(target)]) == 1


def test_only_what_is_sound_is_taken(tmp_path: Path, capsys: Any) -> None:
    cut = fill_and_damage(tmp_path / "data")
    content = bytearray(cut.read_bytes())
    content[-1] ^= 1
    cut.write_bytes(bytes(content))
    assert main(["salvage", str(cut), "--partition", "1"]) == 0
    assert capsys.readouterr().out == "orders-1: 11 records, offsets 3 to 13\n"
    cut.write_bytes(b"x" * 1000)
    assert main(["salvage", str(cut)]) == 0
    assert capsys.readouterr().out == "no sound record\n"
    assert main(["salvage", str(tmp_path / "nothing")]) == 1
