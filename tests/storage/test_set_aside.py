"""What a start sets aside is the operator's: nothing overwrites it, and it is no doubt about what is there."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from ottla.storage.disk import RealDisk
from ottla.storage.inspect.salvage import salvage
from ottla.storage.store.segment_files import LOSS_FILE

COUNT = 8


async def fill(harness: Any, mark: bytes) -> Path:
    """Batches of the same size, each in a block of its own."""
    async with harness.manager() as manager:
        log = await harness.open(manager)
        while log.log_end_offset < COUNT:
            harness.append(log, mark * 100)
            await log.flush()
        return Path(log.store.files.directory)


def damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A bit of the fourth block flips, and power fails, so that a start cannot tell it from a torn write.

    Returns what comes from there on.
    """
    boot_id = RealDisk().boot_id()
    monkeypatch.setattr(RealDisk, "boot_id", lambda _: boot_id + "'")
    for name in ("checkpoint", f"{0:020d}.index"):
        (folder / name).unlink(missing_ok=True)
    path = folder / f"{0:020d}.data"
    content = bytearray(path.read_bytes())
    start = -1
    for _ in range(4):
        start = content.index(b"OtBk", start + 1)
    content[start + 50] ^= 1
    path.write_bytes(bytes(content))
    return bytes(content[start:])


async def start(harness: Any) -> bool:
    """Returns whether records may be missing."""
    async with harness.manager() as manager:
        log = await harness.open(manager)
        return bool(log.may_lack_records)


async def test_each_has_a_name_of_its_own(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = []
    for mark in (b"a", b"b"):
        folder = await fill(harness, mark)
        lost.append(damage(folder, monkeypatch))
        assert await start(harness)
    first, second = sorted(folder.glob("*.cut-*"))
    assert [first.read_bytes(), second.read_bytes()] == lost
    assert second.name == f"{first.name}.2"
    for path, mark in ((first, b"a"), (second, b"b")):
        found = [(batch.header.base_offset, mark * 100 in batch.content) for batch in salvage(RealDisk(), str(path))]
        assert found == [(offset, True) for offset in range(4, COUNT)]


async def test_it_is_said_but_doubted_only_until_that_is_settled(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = await fill(harness, b"a")
    damage(folder, monkeypatch)
    assert await start(harness)
    assert await start(harness)
    async with harness.manager() as manager:
        await (await harness.open(manager)).store.settle_loss()
    assert not await start(harness)
    async with harness.manager() as manager:
        await harness.open(manager)
        assert "was set aside" in next(iter(manager.context.damage)).message


async def test_it_is_doubted_if_the_start_ends_when_the_file_was_cut(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await fill(harness, b"a")
    damage(folder, monkeypatch)
    truncate = RealDisk.truncate

    def truncate_and_die(disk: RealDisk, handle: Any, length: int) -> None:
        truncate(disk, handle, length)
        raise OSError(errno.EIO, "the end")

    with monkeypatch.context() as dying:
        dying.setattr(RealDisk, "truncate", truncate_and_die)
        with pytest.raises((OSError, BaseExceptionGroup)):
            await start(harness)
    assert (folder / LOSS_FILE).exists()
    assert await start(harness)
