"""The simulated disk: what a crash keeps, what a power cut may lose, and the faults it injects."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.storage.disk.simulated_disk import DiskCrashedError, Fault, FaultKind, SimulatedDisk
from ottla.storage.disk.simulated_media import PAGE_BYTES, SECTOR_BYTES
from ottla.storage.errors import DataDirLockedError


def new_file(disk: SimulatedDisk, path: str = "/d/f", content: bytes = b"") -> int:
    disk.mkdir("/d")
    handle = disk.create(path)
    disk.pwritev(handle, [content], 0)
    return handle


def synced_file(disk: SimulatedDisk, content: bytes) -> int:
    handle = new_file(disk, content=content)
    disk.fdatasync(handle)
    disk.fsync_directory("/")
    disk.fsync_directory("/d")
    return handle


OPERATIONS_BY_HANDLE: list[Callable[[SimulatedDisk, int], object]] = [
    lambda disk, handle: disk.pwritev(handle, [b"late"], 0),
    lambda disk, handle: disk.preadv(handle, [memoryview(bytearray(4))], 0),
    lambda disk, handle: disk.fdatasync(handle),
    lambda disk, handle: disk.truncate(handle, 0),
    lambda disk, handle: disk.size(handle),
]

OPERATIONS_BY_NAME: list[Callable[[SimulatedDisk], object]] = [
    lambda disk: disk.open_read("/d/f"),
    lambda disk: disk.create("/d/late"),
    lambda disk: disk.rename("/d/f", "/d/late"),
    lambda disk: disk.unlink("/d/f"),
    lambda disk: disk.mkdir("/late"),
    lambda disk: disk.rmtree("/d"),
    lambda disk: disk.fsync_directory("/d"),
    lambda disk: disk.listdir("/d"),
    lambda disk: disk.lock("/d/lock"),
    lambda disk: disk.write_file_atomic("/d/late", b"late"),
]


class TestProcessCrash:
    def test_everything_written_survives(self) -> None:
        disk = SimulatedDisk()
        new_file(disk, content=b"unsynced")
        assert disk.crash().read_file("/d/f") == b"unsynced"

    @pytest.mark.parametrize("operation", OPERATIONS_BY_HANDLE)
    def test_old_handles_raise_and_do_nothing(self, operation: Callable[[SimulatedDisk, int], object]) -> None:
        disk = SimulatedDisk()
        handle = new_file(disk, content=b"content")
        restarted = disk.crash()
        with pytest.raises(DiskCrashedError):
            operation(disk, handle)
        assert restarted.read_file("/d/f") == b"content"

    @pytest.mark.parametrize("operation", OPERATIONS_BY_NAME)
    def test_the_dead_process_reaches_no_name(self, operation: Callable[[SimulatedDisk], object]) -> None:
        disk = SimulatedDisk()
        new_file(disk, content=b"content")
        restarted = disk.crash()
        with pytest.raises(DiskCrashedError):
            operation(disk)
        assert restarted.listdir("/") == ["d"]
        assert restarted.listdir("/d") == ["f"]

    def test_a_dead_handle_means_nothing_to_the_next_process(self) -> None:
        disk = SimulatedDisk()
        handle = new_file(disk)
        with pytest.raises(OSError, match="Bad file descriptor"):
            disk.crash().fdatasync(handle)

    def test_locks_are_released_and_the_boot_stays(self) -> None:
        disk = SimulatedDisk()
        disk.lock("/lock")
        restarted = disk.crash()
        restarted.lock("/lock")
        assert restarted.boot_id() == SimulatedDisk().boot_id()


class TestPowerLoss:
    def test_synced_data_with_a_synced_name_survives(self) -> None:
        for seed in range(20):
            disk = SimulatedDisk(seed)
            synced_file(disk, b"x" * 10_000)
            restarted = disk.power_loss()
            assert restarted.read_file("/d/f") == b"x" * 10_000
            assert restarted.boot_id() != SimulatedDisk().boot_id()

    def test_a_name_is_lost_sometimes_until_its_directory_is_synced(self) -> None:
        outcomes = set()
        for seed in range(40):
            disk = SimulatedDisk(seed)
            disk.mkdir("/d")
            disk.fsync_directory("/")
            handle = new_file(disk)
            disk.fdatasync(handle)
            outcomes.add(tuple(disk.power_loss().listdir("/d")))
        assert outcomes == {(), ("f",)}

    def test_a_rename_is_lost_or_kept_but_never_torn(self) -> None:
        outcomes = set()
        for seed in range(40):
            disk = SimulatedDisk(seed)
            synced_file(disk, b"old")
            disk.write_file_atomic("/d/g", b"new")
            disk.rename("/d/g", "/d/f")
            restarted = disk.power_loss()
            outcomes.add((restarted.read_file("/d/f"), tuple(restarted.listdir("/d"))))
        assert outcomes == {(b"old", ("f", "g")), (b"new", ("f",))}

    def test_a_removal_comes_back_sometimes(self) -> None:
        outcomes = set()
        for seed in range(40):
            disk = SimulatedDisk(seed)
            synced_file(disk, b"old")
            disk.unlink("/d/f")
            outcomes.add(tuple(disk.power_loss().listdir("/d")))
        assert outcomes == {(), ("f",)}

    def test_unsynced_pages_survive_torn_or_not_at_all(self) -> None:
        outcomes = set()
        for seed in range(200):
            disk = SimulatedDisk(seed)
            handle = synced_file(disk, b"o" * PAGE_BYTES)
            disk.pwritev(handle, [b"n" * PAGE_BYTES], 0)
            content = disk.power_loss().read_file("/d/f")
            new_bytes = content.count(b"n")
            assert content == b"n" * new_bytes + b"o" * (PAGE_BYTES - new_bytes)
            assert new_bytes % SECTOR_BYTES == 0
            outcomes.add(new_bytes)
        assert {0, PAGE_BYTES} < outcomes

    def test_what_was_not_synced_may_have_flipped_bits(self) -> None:
        outcomes = set()
        for seed in range(100):
            disk = SimulatedDisk(seed)
            handle = synced_file(disk, bytes(5_000))
            disk.pwritev(handle, [bytes(10_000)], 5_000)
            content = disk.power_loss(flips=Random(seed)).read_file("/d/f")
            assert not any(content[:5_000])
            outcomes.add(sum(byte.bit_count() for byte in content))
        assert {0, 1, 2} <= outcomes <= {0, 1, 2, 3}

    def test_an_unsynced_truncation_can_come_back(self) -> None:
        outcomes = set()
        for seed in range(60):
            disk = SimulatedDisk(seed)
            handle = synced_file(disk, b"o" * 100)
            disk.truncate(handle, 10)
            content = disk.power_loss().read_file("/d/f")
            assert content == b"o" * len(content)
            outcomes.add(len(content))
        assert {10, 100} < outcomes

    def test_the_same_seed_loses_the_same(self) -> None:
        def run(seed: int) -> bytes:
            disk = SimulatedDisk(seed)
            handle = synced_file(disk, b"o" * 50_000)
            for position in range(0, 50_000, 7_000):
                disk.pwritev(handle, [b"n" * 5_000], position)
            return disk.power_loss().read_file("/d/f")

        assert run(7) == run(7)
        assert len({run(seed) for seed in range(10)}) > 1

    @settings(deadline=None)
    @given(st.integers(0, 1 << 32), st.data())
    def test_every_byte_is_old_or_new_and_synced_bytes_are_there(self, seed: int, data: st.DataObject) -> None:
        """A random history of writes, truncations and syncs against a model of what each page may hold."""
        disk = SimulatedDisk(seed)
        handle = synced_file(disk, b"")
        current = bytearray()
        history = [b""]
        for number in range(1, data.draw(st.integers(1, 12)) + 1):
            action = data.draw(st.sampled_from(["write", "truncate", "sync"]))
            if action == "write":
                position = data.draw(st.integers(0, 20_000))
                size = data.draw(st.integers(1, 9_000))
                disk.pwritev(handle, [bytes([number]) * size], position)
                current.extend(bytes(max(0, position - len(current))))
                current[position : position + size] = bytes([number]) * size
                history.append(bytes(current))
            elif action == "truncate":
                size = data.draw(st.integers(0, len(current)))
                disk.truncate(handle, size)
                del current[size:]
                history.append(bytes(current))
            else:
                disk.fdatasync(handle)
                history = [bytes(current)]
        assert disk.read_file("/d/f") == current
        content = disk.power_loss().read_file("/d/f")
        sizes = [len(version) for version in history]
        assert min(sizes) <= len(content) <= max(sizes)
        for position, byte in enumerate(content):
            allowed = {version[position] if position < len(version) else 0 for version in history}
            assert byte in allowed


class TestFaults:
    def test_an_error_strikes_the_operations_it_names_and_stops(self) -> None:
        disk = SimulatedDisk()
        handle = new_file(disk)
        fault = disk.faults.add(
            Fault(FaultKind.ERROR, frozenset({"fdatasync"}), errno=errno.EIO, path_contains="/d/", after=1)
        )
        disk.fdatasync(handle)
        with pytest.raises(OSError, match="Input/output error"):
            disk.fdatasync(handle)
        disk.fdatasync(handle)
        assert fault.struck == 1

    def test_a_failed_sync_loses_its_pages_for_good(self) -> None:
        outcomes = set()
        for seed in range(10):
            disk = SimulatedDisk(seed)
            handle = synced_file(disk, b"old")
            disk.pwritev(handle, [b"new"], 0)
            disk.faults.add(Fault(FaultKind.ERROR, frozenset({"fdatasync"}), errno=errno.EIO))
            with pytest.raises(OSError, match="Input/output error"):
                disk.fdatasync(handle)
            disk.fdatasync(handle)
            outcomes.add(disk.power_loss().read_file("/d/f"))
        assert outcomes == {b"old"}

    def test_a_failed_write_leaves_a_part(self) -> None:
        lengths = set()
        for seed in range(20):
            disk = SimulatedDisk(seed)
            handle = new_file(disk)
            disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
            with pytest.raises(OSError, match="Input/output error"):
                disk.pwritev(handle, [b"n" * 100, b"n" * 100], 0)
            content = disk.read_file("/d/f")
            assert content == b"n" * len(content)
            lengths.add(len(content))
        assert len(lengths) > 5

    def test_a_full_disk_takes_what_fits(self) -> None:
        disk = SimulatedDisk(capacity_bytes=1000)
        handle = new_file(disk, content=b"x" * 900)
        assert disk.free_bytes("/") == 100
        with pytest.raises(OSError, match="No space left"):
            disk.pwritev(handle, [b"y" * 101], 900)
        assert 900 <= disk.size(handle) <= 1000
        disk.pwritev(handle, [b"z" * 900], 0)
        disk.truncate(handle, 0)
        assert disk.pwritev(handle, [b"y" * 1000], 0) == 1000

    def test_a_crash_in_a_write_leaves_a_part_and_a_dead_process(self) -> None:
        lengths = set()
        for seed in range(20):
            disk = SimulatedDisk(seed)
            handle = new_file(disk)
            disk.faults.add(Fault(FaultKind.CRASH, frozenset({"pwritev"})))
            with pytest.raises(DiskCrashedError):
                disk.pwritev(handle, [b"n" * 100], 0)
            assert disk.is_dead
            lengths.add(len(disk.crash().read_file("/d/f")))
        assert len(lengths) > 5

    def test_a_crash_in_a_rename_comes_before_or_after(self) -> None:
        outcomes = set()
        for seed in range(20):
            disk = SimulatedDisk(seed)
            new_file(disk)
            disk.faults.add(Fault(FaultKind.CRASH, frozenset({"rename"})))
            with pytest.raises(DiskCrashedError):
                disk.rename("/d/f", "/d/g")
            outcomes.add(tuple(disk.crash().listdir("/d")))
        assert outcomes == {("f",), ("g",)}

    def test_a_flipped_bit_is_one_bit(self) -> None:
        disk = SimulatedDisk()
        handle = new_file(disk, content=bytes(1000))
        disk.faults.add(Fault(FaultKind.FLIP_BIT, frozenset({"preadv"})))
        assert sum(byte.bit_count() for byte in disk.read_file("/d/f")) == 1
        assert disk.read_file("/d/f") == bytes(1000)
        disk.faults.add(Fault(FaultKind.FLIP_BIT, frozenset({"pwritev"})))
        disk.pwritev(handle, [bytes(1000)], 0)
        assert sum(byte.bit_count() for byte in disk.read_file("/d/f")) == 1

    def test_damage_at_rest_survives_everything(self) -> None:
        disk = SimulatedDisk()
        synced_file(disk, bytes(10))
        bit = disk.flip_bit("/d/f")
        assert disk.power_loss().read_file("/d/f")[bit // 8] == 1 << bit % 8

    def test_a_probability_strikes_sometimes(self) -> None:
        disk = SimulatedDisk(3)
        handle = new_file(disk)
        fault = disk.faults.add(
            Fault(FaultKind.ERROR, frozenset({"size"}), errno=errno.EIO, probability=0.5, count=None)
        )
        failed = 0
        for _ in range(100):
            try:
                disk.size(handle)
            except OSError:
                failed += 1
        assert failed == fault.struck
        assert 20 < failed < 80


class TestAtomicWrites:
    """`write_file_atomic` under a crash at each of its operations, with the power going off as well."""

    @pytest.mark.parametrize("power_goes_off", [True, False])
    def test_the_old_content_or_the_new_one_is_there(self, power_goes_off: bool) -> None:
        outcomes = set()
        for seed in range(20):
            for operation in range(20):
                disk = SimulatedDisk(seed)
                synced_file(disk, b"old" * 2_000)
                disk.faults.add(Fault(FaultKind.CRASH, after=operation))
                finished = True
                try:
                    disk.write_file_atomic("/d/f", b"newer" * 2_000)
                except DiskCrashedError:
                    finished = False
                restarted = disk.power_loss() if power_goes_off else disk.crash()
                content = restarted.read_file("/d/f")
                assert content in (b"old" * 2_000, b"newer" * 2_000)
                if finished:
                    assert content == b"newer" * 2_000
                outcomes.add((finished, content[:3]))
                restarted.write_file_atomic("/d/f", b"again")
                assert restarted.read_file("/d/f") == b"again"
        assert outcomes == {(True, b"new"), (False, b"new"), (False, b"old")}

    def test_an_error_leaves_the_old_content(self) -> None:
        for operation in ("create", "pwritev", "fdatasync", "rename"):
            disk = SimulatedDisk()
            synced_file(disk, b"old")
            disk.faults.add(Fault(FaultKind.ERROR, frozenset({operation}), errno=errno.ENOSPC))
            handles = disk.open_handles
            with pytest.raises(OSError, match="No space left"):
                disk.write_file_atomic("/d/f", b"new")
            assert disk.read_file("/d/f") == b"old"
            assert disk.open_handles == handles


class TestFileSystem:
    """What it shares with the real disk is tested with it, in test_disk.py."""

    def test_cold_reads_are_short_at_page_boundaries(self) -> None:
        disk = SimulatedDisk(1, cold_probability=1.0)
        handle = new_file(disk, content=b"x" * (4 * PAGE_BYTES))
        buffer = bytearray(4 * PAGE_BYTES)
        counts = {disk.preadv(handle, [memoryview(buffer)], 0, nowait=True) for _ in range(50)}
        assert counts == {k * PAGE_BYTES for k in range(5)}
        assert disk.preadv(handle, [memoryview(buffer)], 0) == 4 * PAGE_BYTES

    def test_two_processes_on_one_disk_exclude_each_other(self) -> None:
        disk = SimulatedDisk()
        other = SimulatedDisk(media=disk._media)
        handle = disk.lock("/lock")
        with pytest.raises(DataDirLockedError):
            other.lock("/lock")
        disk.close(handle)
        other.lock("/lock")

    def test_an_unlinked_file_lives_while_it_is_open(self) -> None:
        disk = SimulatedDisk()
        handle = new_file(disk, content=b"content")
        disk.unlink("/d/f")
        buffer = bytearray(7)
        assert disk.preadv(handle, [memoryview(buffer)], 0) == 7
        assert buffer == b"content"
        disk.close(handle)
        assert disk.open_handles == 0


class TestOthersRun:
    """Between the operations of a call that blocks others run, and may close what it uses."""

    def test_a_descriptor_number_is_given_out_again_at_once(self) -> None:
        disk = SimulatedDisk()
        first = new_file(disk, "/d/first")
        second = new_file(disk, "/d/second")
        disk.close(first)
        assert disk.open_read("/d/second") == first != second

    def test_a_write_meets_the_file_that_has_the_number_now(self) -> None:
        disk = SimulatedDisk()
        handle = new_file(disk, "/d/meant")
        new_file(disk, "/d/other", b"other")

        def close_it(operation: str) -> None:
            disk.pause = None
            disk.close(handle)
            assert disk.open_write("/d/other") == handle

        disk.pause = close_it
        disk.pwritev(handle, [b"wrong"], 0)
        assert disk.read_file("/d/other") == b"wrong"
        assert disk.misdirected == [("pwritev", "/d/meant", "/d/other")]

    def test_a_write_of_many_buffers_is_several_operations(self) -> None:
        seen: list[bytes] = []
        disk = SimulatedDisk(iov_max=2)
        handle = new_file(disk)
        disk.pause = lambda operation: seen.append(bytes(disk._media.file("/d/f").content))
        assert disk.pwritev(handle, [b"a", b"b", b"c"], 0) == 3
        disk.pause = None
        assert seen == [b"", b"ab"]
        assert disk.read_file("/d/f") == b"abc"
