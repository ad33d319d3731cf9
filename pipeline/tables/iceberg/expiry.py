"""Old snapshots of an Iceberg table, and the files that only they need.

How long a snapshot stays is the table's own setting, which every engine keeps: `history.expire.max-snapshot-age-ms`
(five days) and `history.expire.min-snapshots-to-keep` (1). What branches and tags name stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["expire"]

_AGE: Final = "history.expire.max-snapshot-age-ms"
_AGE_MS: Final = 5 * 24 * 3600 * 1000
_LEAST: Final = "history.expire.min-snapshots-to-keep"


def expire(table: Table, now: datetime | None = None) -> int:
    """Remove the snapshots that are too old, and then the files that no other snapshot has; how many snapshots.

    Where another commit comes first, they are left for the next time. A kill between the two leaves files that nothing
    refers to.
    """
    from pyiceberg.exceptions import CommitFailedException

    now_ms = int((now or datetime.now(UTC)).timestamp() * 1000)
    gone = _too_old(table, now_ms)
    if not gone:
        return 0
    theirs = _files(table, gone)
    try:
        table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in gone]).commit()
    except CommitFailedException:
        return 0
    table.refresh()
    for path in sorted(theirs - _files(table, table.snapshots())):
        with suppress(OSError):
            table.io.delete(path)
    return len(gone)


def _too_old(table: Table, now_ms: int) -> list[Snapshot]:
    kept = {reference.snapshot_id for reference in table.refs().values()}
    newest = sorted(table.snapshots(), key=lambda snapshot: int(snapshot.timestamp_ms), reverse=True)
    kept |= {snapshot.snapshot_id for snapshot in newest[: int(table.properties.get(_LEAST, 1))]}
    oldest_ms = now_ms - int(table.properties.get(_AGE, _AGE_MS))
    return [each for each in newest if each.snapshot_id not in kept and each.timestamp_ms < oldest_ms]


def _files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Every file that makes these snapshots up."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return found
