"""Keys, values and transactions as etcd's JSON gateway takes them.

An Ottla cluster owns the keys below its root, and the root itself: that key is written by every transaction, so that
its revision is that of the cluster's last change, even if other applications use the same etcd.

Limits of etcd, and how they are dealt with here:

- A transaction has at most 128 operations (`--max-txn-ops`), but an operation may be a transaction. Many operations are
  made into a tree, which is still one transaction of one revision.
- It also has at most 128 comparisons, for which there is no such way: `EtcdMetadataStore` compares many keys itself and
  the root's revision in the transaction.
- A request has at most 1.5 MiB (`--max-request-bytes`). Values from 4 KiB on are compressed: a topic of 100,000
  partitions then takes some 100 KB. A change that is still larger is refused.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.metastore.errors import MetadataDamagedError
from ottla.metastore.store import NO_LEASE, Change, Compare, DeletePrefix, KeyValue, Operation, Put

FORMAT: Final = b'{"ottla":1}'
"""The root's value."""

MAX_OPERATIONS: Final = 120
"""As many operations and comparisons a transaction may have as it is; etcd's limit is 128 for each."""

#: For each of three levels: etcd takes the sum over the levels for the number of operations.
_FANOUT: Final = 42

_COMPRESS_FROM_BYTES: Final = 4096
_MAX_VALUE_BYTES: Final = 256 * 1024 * 1024
#: Prefixes of values that are not written as they are; no JSON begins with these.
_COMPRESSED: Final = b"\x00z"
_PLAIN: Final = b"\x00p"


class Keys:
    """The keys of one cluster."""

    def __init__(self, root: str) -> None:
        self._root = root

    @property
    def root(self) -> str:
        return _base64(self._root)

    @property
    def parents(self) -> list[str]:
        """The paths above the root, which would be the roots of clusters that this one lies in."""
        parts = self._root.split("/")
        return [_base64("/".join(parts[:end])) for end in range(2, len(parts))]

    def of(self, key: str) -> str:
        return _base64(self._root + key)

    def span(self, prefix: str) -> dict[str, str]:
        """`key` and `range_end` of all keys that begin with `prefix`."""
        first = (self._root + (prefix or "/")).encode("utf-8", "surrogatepass")
        return {"key": b64encode(first).decode(), "range_end": b64encode(first[:-1] + bytes([first[-1] + 1])).decode()}

    def parse(self, text: str) -> str:
        return b64decode(text).decode("utf-8", "surrogatepass").removeprefix(self._root)

    def entry(self, kv: Mapping[str, str]) -> KeyValue:
        return KeyValue(
            self.parse(kv["key"]),
            decode_value(b64decode(kv.get("value", ""))),
            int(kv["create_revision"]),
            int(kv["mod_revision"]),
            int(kv.get("lease", NO_LEASE)),
        )

    def changes(self, events: Iterable[Mapping[str, Any]]) -> list[Change]:
        """The events of a watch, by transaction."""
        found: dict[int, tuple[list[KeyValue], list[str]]] = {}
        for event in events:
            kv = event["kv"]
            puts, deletes = found.setdefault(int(kv["mod_revision"]), ([], []))
            if event.get("type") == "DELETE":
                deletes.append(self.parse(kv["key"]))
            else:
                puts.append(self.entry(kv))
        return [Change(revision, tuple(puts), tuple(deletes)) for revision, (puts, deletes) in found.items()]

    def transaction(
        self, compares: Sequence[Compare], operations: Sequence[Operation], root_revision: int | None = None
    ) -> bytes:
        """A transaction; with `root_revision` only if there has been no other since that one."""
        conditions = [_condition(self.of(compare.key), compare.mod_revision) for compare in compares]
        if root_revision is not None:
            conditions.append(_condition(self.root, root_revision))
        steps = [{"requestPut": {"key": self.root, "value": b64encode(FORMAT).decode()}}, *map(self._step, operations)]
        if len(steps) > MAX_OPERATIONS:
            steps = _tree(_tree(steps))
        return dump({"compare": conditions, "success": steps})

    def _step(self, operation: Operation) -> dict[str, Any]:
        if isinstance(operation, Put):
            value = b64encode(encode_value(operation.value)).decode()
            return {"requestPut": {"key": self.of(operation.key), "value": value, "lease": str(operation.lease)}}
        if isinstance(operation, DeletePrefix):
            return {"requestDeleteRange": self.span(operation.prefix)}
        return {"requestDeleteRange": {"key": self.of(operation.key)}}


def encode_value(value: bytes) -> bytes:
    """The stored form of a value."""
    if len(value) >= _COMPRESS_FROM_BYTES:
        packed = _COMPRESSED + zlib.compress(value, 6)
        if len(packed) < len(value):
            return packed
    return _PLAIN + value if value.startswith(b"\x00") else value


def decode_value(stored: bytes) -> bytes:
    """The value for what is stored; raises MetadataDamagedError if that is not a value of ours."""
    if not stored.startswith(b"\x00"):
        return stored
    if stored.startswith(_PLAIN):
        return stored.removeprefix(_PLAIN)
    unpacker = zlib.decompressobj()
    try:
        value = unpacker.decompress(stored.removeprefix(_COMPRESSED), _MAX_VALUE_BYTES)
    except zlib.error as error:
        raise MetadataDamagedError(f"A value in etcd is damaged: {error}.") from None
    if not unpacker.eof:
        raise MetadataDamagedError("A value in etcd is damaged, or too large to be one of Ottla's.")
    return value


def dump(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _condition(key: str, mod_revision: int) -> dict[str, str]:
    """For etcd as well, 0 is the revision of an absent key."""
    return {"key": key, "target": "MOD", "modRevision": str(mod_revision), "result": "EQUAL"}


def _tree(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    groups = [steps[start : start + _FANOUT] for start in range(0, len(steps), _FANOUT)]
    return [{"requestTxn": {"success": group}} for group in groups]


def _base64(text: str) -> str:
    return b64encode(text.encode("utf-8", "surrogatepass")).decode()
