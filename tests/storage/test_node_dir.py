"""A folder that a node cannot use: said in a sentence, and nothing is changed."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from ottla.storage.disk import Disk, RealDisk
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import DataDirUnusableError, UnsupportedFormatError
from ottla.storage.node_dir import SPARE_FILE, NodeDir, read_note


class ReadOnly(RealDisk):
    """A file system that takes no changes."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code

    def lock(self, path: str) -> int:
        raise OSError(self._code, os.strerror(self._code), path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: os.PathLike[str], code: int) -> None:
    folder = os.fspath(tmp_path)
    with pytest.raises(DataDirUnusableError, match=f"{folder}/node-1 cannot be written to: {os.strerror(code)}"):
        NodeDir(ReadOnly(code), folder, 1).open()


def test_a_file_in_place_of_the_folder_is_named(tmp_path: os.PathLike[str]) -> None:
    folder = os.fspath(tmp_path)
    with open(os.path.join(folder, "node-1"), "w"):
        pass
    with pytest.raises(DataDirUnusableError, match="cannot be written to: Not a directory"):
        NodeDir(RealDisk(), folder, 1).open()


def opened(disk: Disk) -> NodeDir:
    node_dir = NodeDir(disk, "/data", 1)
    node_dir.open()
    return node_dir


@pytest.mark.parametrize("spare", [b"", bytes(1024), b"{}", b'{"note": 9, "starts": 9, "crc32": "00000000"}', b"[1]"])
def test_a_spare_that_was_not_written_to_its_end_says_nothing(spare: bytes) -> None:
    disk = SimulatedDisk(1)
    node_dir = opened(disk)
    node_dir.note_start(3)
    disk = disk.crash()
    disk.write_file_atomic(f"/data/node-1/{SPARE_FILE}", spare)
    assert opened(disk).starts == 3


def test_a_note_that_was_removed_does_not_come_back_from_the_spare() -> None:
    disk = SimulatedDisk(1)
    opened(disk)
    disk = disk.crash()
    disk.capacity_bytes = 0
    opened(disk).note_start(3)
    disk = disk.crash()
    disk.capacity_bytes = None
    disk.unlink("/data/node-1/node.json")
    opened(disk).note_start(1)
    assert opened(disk.crash()).starts == 1


def was_closed(disk: Disk) -> Any:
    note = read_note(disk, "/data/node-1")
    assert note is not None
    return note["clean_shutdown"]


def test_what_was_noted_last_is_read_wherever_it_is() -> None:
    disk = SimulatedDisk(1)
    opened(disk).close(clean=True)
    assert was_closed(disk) is True
    disk.capacity_bytes = 0
    opened(disk)
    assert was_closed(disk) is False, "in use, as the spare says"


@pytest.mark.parametrize("content", [b"[1]", b"[]", b"7", b'"node"'])
def test_a_note_that_is_no_note_is_refused(content: bytes) -> None:
    disk = SimulatedDisk(1)
    opened(disk)
    disk = disk.crash()
    disk.write_file_atomic("/data/node-1/node.json", content)
    with pytest.raises(UnsupportedFormatError, match="is not a node's identity"):
        opened(disk)


def test_a_folder_is_left_even_if_the_end_cannot_be_noted() -> None:
    disk = SimulatedDisk(1)
    node_dir = opened(disk)
    disk.faults.add(Fault(FaultKind.ERROR, frozenset({"fdatasync"}), errno=errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        node_dir.close(clean=True)
    disk.faults.clear()
    assert opened(disk).was_clean is False


@pytest.mark.parametrize("end", ["in order", "killed", "power again"])
def test_a_loss_of_power_is_known_until_it_is_settled(end: str) -> None:
    """A start that ends before the cluster was told, however it ends, leaves that to the next one."""
    disk = SimulatedDisk(1)
    assert not opened(disk).lost_power
    disk = disk.power_loss()
    early = opened(disk)
    assert early.lost_power
    if end == "in order":
        early.close(clean=True)
    else:
        disk = disk.power_loss() if end == "power again" else disk.crash()
    again = opened(disk)
    assert again.lost_power
    again.settle_loss()
    assert not again.lost_power
    assert not opened(disk.crash()).lost_power


def test_a_folder_knows_how_often_its_node_had_started() -> None:
    disk = SimulatedDisk(1)
    node_dir = opened(disk)
    assert node_dir.starts is None
    node_dir.note_start(3)
    assert opened(disk.power_loss()).starts == 3


def test_a_machine_that_was_restarted_after_an_orderly_end_has_lost_nothing() -> None:
    disk = SimulatedDisk(1)
    opened(disk).close(clean=True)
    assert not opened(disk.power_loss()).lost_power


@pytest.mark.parametrize("opens", [False, True])
async def test_a_start_that_opens_nothing_does_not_call_whole_what_a_kill_has_left(
    harness: Any, *, opens: bool
) -> None:
    """What was acknowledged is not synced yet: the machine may still lose it, and the next start must know."""
    disk = SimulatedDisk(2)
    async with harness.manager(disk) as manager:
        log = await harness.open(manager)
        for number in range(20):
            harness.append(log, b"%d" % number)
        await log.store.writer.flush(sync=False)
        disk = disk.crash()
    async with harness.manager(disk) as manager:
        if opens:
            await harness.open(manager)
    async with harness.manager(disk.power_loss()) as manager:
        log = await harness.open(manager)
        assert manager.node_dir.lost_power is not opens
        assert (log.log_end_offset == 20) is opens


def started(disk: SimulatedDisk, count: int, *, is_counted: bool = True) -> tuple[bool, SimulatedDisk]:
    """A start that the cluster counts as `count`, and a kill. Returns whether the folder was ahead, and the disk."""
    node_dir = opened(disk)
    node_dir.note_start(count)
    is_ahead = node_dir.is_ahead
    if is_counted:
        node_dir.join("ours")
    return is_ahead, disk.crash()


@pytest.mark.parametrize(("count", "is_ahead"), [(2, False), (3, False), (1, True), (0, True)])
def test_a_folder_that_has_seen_more_starts_than_the_cluster_counts_is_ahead(count: int, is_ahead: bool) -> None:
    _, disk = started(SimulatedDisk(1), 0)
    _, disk = started(disk, 1)
    found, disk = started(disk, count)
    assert found is is_ahead
    assert not started(disk, count + 1)[0]


def test_a_start_that_was_not_counted_is_noted_again() -> None:
    _, disk = started(SimulatedDisk(1), 0)
    _, disk = started(disk, 1, is_counted=False)
    assert not started(disk, 1)[0]


def test_a_start_that_ends_early_leaves_it_to_the_next_one_that_the_folder_is_ahead() -> None:
    _, disk = started(SimulatedDisk(1), 0)
    _, disk = started(disk, 1)
    is_ahead, disk = started(disk, 1, is_counted=False)
    assert is_ahead
    is_ahead, disk = started(disk, 2)
    assert is_ahead
    assert not started(disk, 3)[0]
