"""How far the scrubber is, and what it has found: a small file beside the stores, which outlives the process."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.storage.disk import Disk

__all__ = ["SCRUB_FILE", "ScrubFinding", "ScrubState", "read_scrub_state", "write_scrub_state"]

SCRUB_FILE: Final = "scrub.json"
_KEPT: Final = 1000


class ScrubFinding(NamedTuple):
    """Damage: a file below the node's folder, the byte (-1 for the whole file), and what is wrong, as a sentence."""

    path: str
    position: int
    message: str


class ScrubState(NamedTuple):
    """When the last pass over all files has ended (0: never), what it found, and where the one under way is.

    `store` and `position` name the last segment that was read; the store is empty between passes.
    """

    finished_ms: int = 0
    findings: tuple[ScrubFinding, ...] = ()
    store: str = ""
    position: int = -1


def read_scrub_state(disk: Disk, node_path: str) -> ScrubState:
    """The state; that of a node that was never scrubbed if there is none, or none that can be read. Blocks."""
    path = os.path.join(node_path, SCRUB_FILE)
    if not disk.exists(path):
        return ScrubState()
    try:
        content: dict[str, Any] = json.loads(disk.read_file(path))
        findings = tuple(
            ScrubFinding(str(each["path"]), int(each["position"]), str(each["message"])) for each in content["findings"]
        )
        return ScrubState(int(content["finished_ms"]), findings, str(content["store"]), int(content["position"]))
    except (ValueError, KeyError, TypeError):
        # All is read again.
        return ScrubState()


def write_scrub_state(disk: Disk, node_path: str, state: ScrubState) -> None:
    """Replace the file. Blocks."""
    findings = [finding._asdict() for finding in state.findings[:_KEPT]]
    content = json.dumps(state._asdict() | {"findings": findings}, indent=2).encode() + b"\n"
    disk.write_file_atomic(os.path.join(node_path, SCRUB_FILE), content)
