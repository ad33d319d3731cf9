"""Checks of the machine by `ottla doctor`: the disk, the limits, the memory, the clock."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import shutil
import stat
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ottla.cli.doctor.finding import Finding, fail, ok, warn
from ottla.cli.options import human_size
from ottla.cli.serve.memory import available_memory
from ottla.storage.disk import RealDisk
from ottla.storage.errors import CorruptLogError
from ottla.storage.kept_logs import cut_files, describe_kept_log, read_kept_logs
from ottla.storage.node_dir import store_directories
from ottla.storage.store.segment_files import Loss, list_segments, mark_losses, set_aside
from ottla.storage.upkeep.scrub_state import read_scrub_state

_NAMED_LOSSES: Final = 10
_FEW_FILES: Final = 4096
_FILES_OF_ITS_OWN: Final = 256
_LITTLE_SPACE_BYTES: Final = 1 << 30
_NO_SPACE_BYTES: Final = 64 << 20
_SLOW_SYNC_MS: Final = 20.0
_SYNCS: Final = 16
_IDLE_BYTES: Final = 50 << 20
_LOST_WITH_POWER: Final = frozenset({"tmpfs", "ramfs"})
_LOST_WITH_CONTAINER: Final = frozenset({"overlay", "aufs"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"})
_EARLIEST_S: Final = 1735689600  # 2025-01-01: an earlier date is certainly wrong
_FUTURE_S: Final = 60


def data_folder(path: str) -> Iterator[Finding]:
    """The folder, or the place where it would be created."""
    subject = "data folder"
    folder = Path(path).absolute()
    place = next(it for it in (folder, *folder.parents) if it.exists())
    if not place.is_dir():
        yield fail(subject, f"{place} is a file", "name a folder with --data-dir")
        return
    if not os.access(place, os.W_OK | os.X_OK):
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            yield fail(subject, f"{place} is on a read-only file system", "name another folder with --data-dir")
            return
        yield fail(subject, f"{place} may not be written to by this user", f"chown it, or run as the owner of {place}")
        return
    yield ok(subject, f"{folder} is there" if place == folder else f"{folder} will be created")
    if place == folder:
        yield _readers(folder)
    yield _file_system(place)
    yield _space(place)
    yield _sync_speed(place)
    yield from _losses(folder)
    yield from _kept(folder)
    yield from _scrubbed(folder)


def _readers(folder: Path) -> Finding:
    """The users who may look into the folder: if no others may, the modes of what is in it do not matter.

    A set-group-ID bit says that the group was chosen, as Kubernetes does for fsGroup.
    """
    subject = "readers of the data folder"
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IRWXO:
        who = "every user of this machine"
    elif mode & stat.S_IRWXG and not mode & stat.S_ISGID:
        who = f"its group ({folder.stat().st_gid})"
    else:
        return ok(subject, "nobody else may look into it")
    return warn(
        subject,
        f"{who} may look into it (mode {mode:04o}), and read records and credentials of files with such modes",
        f"chmod -R go= {shlex.quote(str(folder))}",
    )


def _file_system(place: Path) -> Finding:
    kind = _kind_of_file_system(place)
    subject = "file system"
    if kind in _LOST_WITH_POWER:
        return warn(subject, f"{kind} is in memory: a restart of the machine loses all data", "use a disk")
    if kind in _LOST_WITH_CONTAINER:
        return warn(subject, f"{kind} is lost with the container", "mount a volume for the data folder")
    if kind in _REMOTE:
        return warn(subject, f"{kind} is remote: locks and syncs may not keep their promises", "use a local disk")
    return ok(subject, kind)


def _losses(folder: Path) -> Iterator[Finding]:
    """Losses, judged by the names and sizes of data files. `ottla fsck` reads every byte; this reads none."""
    disk = RealDisk()
    found = [loss for node in sorted(folder.glob("node-*")) for loss in _losses_of(disk, str(node))]
    for loss in found[:_NAMED_LOSSES]:
        yield fail(
            "data files", loss.message, "stop the broker, run ottla fsck, and restore what is lost from a backup"
        )
    if len(found) > _NAMED_LOSSES:
        yield fail("data files", f"{len(found) - _NAMED_LOSSES} more are lost or were set aside", "run ottla fsck")


def _losses_of(disk: RealDisk, node_path: str) -> Iterator[Loss]:
    for directory in store_directories(disk, node_path):
        try:
            names = disk.listdir(directory)
            segments = list_segments(disk, directory, names)
            for segment in segments:
                if not segment.is_lost:
                    segment.found(os.path.getsize(segment.data_path))
        except OSError:
            continue  # a running broker removes what is not needed any more
        yield from mark_losses(disk, segments)
        yield from set_aside(directory, names)


def _kept(folder: Path) -> Iterator[Finding]:
    """Logs that the cluster does not count on, and what leaders have cut from such logs."""
    disk = RealDisk()
    subject = "kept logs"
    found: list[tuple[str, str]] = []
    for node in sorted(folder.glob("node-*")):
        try:
            logs, files = read_kept_logs(disk, str(node)), cut_files(disk, str(node))
        except (OSError, CorruptLogError) as error:
            found.append((f"{node.name}: {error}", "the next start writes it again"))
            continue
        advice = "if the metadata is old, restore a newer one; else stop the broker and run ottla fsck --delete-stray"
        found += [
            (f"{node.name}: {describe_kept_log(log)}", advice if log.is_stray else "wait until it is in sync")
            for log in logs
        ]
        found += [
            (f"{path} was cut from a replica whose leader lacked it", "see ottla salvage, then remove the file")
            for path in files
        ]
    for message, advice in found[:_NAMED_LOSSES]:
        yield warn(subject, message, advice)
    if len(found) > _NAMED_LOSSES:
        yield warn(subject, f"{len(found) - _NAMED_LOSSES} more are kept", "run ottla fsck")


def _scrubbed(folder: Path) -> Iterator[Finding]:
    """The result and the time of the broker's last scrub of its closed data files."""
    subject = "damaged files"
    for node in sorted(folder.glob("node-*")):
        try:
            state = read_scrub_state(RealDisk(), str(node))
        except OSError:
            continue
        known = [each for each in state.findings if (node / each.path).exists()]
        for finding in known[:_NAMED_LOSSES]:
            yield fail(
                subject, f"{node.name}: {finding.message}", "run ottla fsck, and restore what is lost from a backup"
            )
        if state.finished_ms and not known:
            when = datetime.fromtimestamp(state.finished_ms / 1000, UTC).isoformat(" ", "minutes")
            yield ok(subject, f"{node.name}: none when all were read, at {when}")


def _kind_of_file_system(place: Path) -> str:
    device = place.stat().st_dev
    found = "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            before, _, after = line.partition(" - ")
            major, _, minor = before.split()[2].partition(":")
            if os.makedev(int(major), int(minor)) == device:
                found = after.split()[0]
    return found


def _space(place: Path) -> Finding:
    usage = shutil.disk_usage(place)
    said = f"{human_size(usage.free)} of {human_size(usage.total)} are free"
    advice = "make room, or give topics retention.bytes or retention.ms"
    if usage.free < _NO_SPACE_BYTES:
        return fail("disk space", said, advice)
    if usage.free < max(_LITTLE_SPACE_BYTES, usage.total // 20):
        return warn("disk space", said, advice)
    return ok("disk space", said)


def _sync_speed(place: Path) -> Finding:
    times_ms = []
    disk = RealDisk()
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            for _ in range(_SYNCS):
                os.write(file.fileno(), bytes(4096))
                started = time.perf_counter()
                disk.fdatasync(file.fileno())
                times_ms.append((time.perf_counter() - started) * 1000)
    except OSError as error:
        return fail("sync", f"cannot create a file in {place}: {error.strerror}", "name another folder with --data-dir")
    median_ms = statistics.median(times_ms)
    said = f"{median_ms:.2f} ms for one, the slowest of {_SYNCS} took {max(times_ms):.2f} ms"
    if median_ms > _SLOW_SYNC_MS:
        return warn("sync", said, "topics with flush.messages=1 will be slow: use a faster disk for them")
    return ok("sync", said)


def files(max_connections: int) -> Finding:
    """Each connection needs a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft}"
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        raise_it = "`ulimit -n 65536`" if hard == resource.RLIM_INFINITY or hard > soft else "limits.conf"
        room = max(soft - _FILES_OF_ITS_OWN, 0)
        return warn(
            "open files",
            f"{said}: room for some {room} connections; max.connections is {max_connections}",
            f"raise it with {raise_it}, LimitNOFILE= in a systemd unit",
        )
    return ok("open files", said)


def memory(budget_bytes: int, nodes: int = 1) -> Finding:
    """The memory left on the machine, or in the control group, compared with what the broker's nodes may take."""
    available = available_memory()
    needed = nodes * (budget_bytes + _IDLE_BYTES)
    said = f"{human_size(available)} available, up to about {human_size(needed)} needed under load"
    if available < needed:
        return warn("memory", said, "lower ottla.memory.budget.bytes, or give it more memory")
    return ok("memory", said)


def clock(data_dir: str, now: float) -> Finding:
    """Timestamps, retention and, if nodes share `cluster.sqlite`, leases depend on the clock, which shows `now`."""
    if now < _EARLIEST_S:
        return fail("clock", f"it says {time.strftime('%Y-%m-%d', time.gmtime(now))}", "set it, and run an NTP client")
    newest = 0.0
    with contextlib.suppress(OSError):
        newest = max((entry.stat().st_mtime for entry in os.scandir(data_dir)), default=0.0)
    if newest > now + _FUTURE_S:
        return warn("clock", f"{data_dir} was written to {newest - now:.0f} s in the future", "run an NTP client")
    return ok("clock", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)))
