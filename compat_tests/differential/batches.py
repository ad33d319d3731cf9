"""Record batches from a history's plain data, also such as no producer builds, and from an answer as plain data.

A batch is `{"values": [...], "keys": [...], "headers": [[name, value]], "codec": 0, "timestamp": ms, "step_ms": 1,
"producer_id": n, "epoch": n, "sequence": n, "flags": bits, "wrap": name, "tail": hex, "header": {field: value},
"spoil": [position, byte]}`, all of them optional; `header` replaces fields before the checksum is made, `spoil` a byte
behind the length after it.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import cramjam
from lz4 import frame as lz4_frame

from ottla.kproto.records import Record, build_batch, parse_batch_header
from ottla.kproto.records.builder import assemble_batch
from ottla.kproto.records.header import HEADER_SIZE_BYTES
from ottla.kproto.records.reader import iter_records

#: Far enough from every clock that a timestamp of a history is never taken for the time of its play.
A_TIME_MS: Final = 1_600_000_000_000


def _xerial(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2 + len(block).to_bytes(4, "big") + block


#: Ways to compress that are a codec's own, by name.
FRAMINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": lambda data: data,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "gzip members": lambda data: gzip.compress(data[:9], mtime=0) + gzip.compress(data[9:], mtime=0),
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "xerial": _xerial,
    "xerial twice": lambda data: _xerial(data[:9]) + _xerial(data[9:]),
    "lz4": lambda data: bytes(lz4_frame.compress(data, block_linked=False, store_size=False)),
    "lz4 linked": lambda data: bytes(lz4_frame.compress(data, block_linked=True, store_size=False)),
    "lz4 sized": lambda data: bytes(lz4_frame.compress(data, block_linked=False, store_size=True)),
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
    "zstd frames": lambda data: bytes(cramjam.zstd.compress(data[:9])) + bytes(cramjam.zstd.compress(data[9:])),
}
FRAMINGS_OF: Final[dict[int, tuple[str, ...]]] = {
    0: ("none",),
    1: ("gzip", "gzip members"),
    2: ("snappy", "xerial", "xerial twice"),
    3: ("lz4", "lz4 linked", "lz4 sized"),
    4: ("zstd", "zstd frames"),
}


def build_batches(batches: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(_build(batch) if "hex" not in batch else bytes.fromhex(batch["hex"]) for batch in batches)


def _build(spec: Mapping[str, Any]) -> bytes:
    values = spec.get("values", ["v"])
    keys = spec.get("keys", [None] * len(values))
    start, step = spec.get("timestamp", A_TIME_MS), spec.get("step_ms", 1)
    headers = tuple((name, _bytes(value)) for name, value in spec.get("headers", ()))
    records = [
        Record(timestamp_ms=start + index * step, key=_bytes(key), value=_bytes(value), headers=headers)
        for index, (key, value) in enumerate(zip(keys, values, strict=False))
    ]
    flags = spec.get("flags", 0)
    made = build_batch(
        records,
        producer_id=spec.get("producer_id", -1),
        producer_epoch=spec.get("epoch", -1),
        base_sequence=spec.get("sequence", -1),
        is_transactional=bool(flags & 0x10),
    )
    codec = spec.get("codec", 0)
    framing = FRAMINGS[spec.get("wrap") or FRAMINGS_OF.get(codec, ("none",))[0]]
    payload = framing(made[HEADER_SIZE_BYTES:]) + bytes.fromhex(spec.get("tail", ""))
    header = parse_batch_header(made)
    header = header._replace(attributes=codec | flags)._replace(**spec.get("header", {}))
    whole = bytearray(assemble_batch(header, payload))
    if "spoil" in spec:
        position, byte = spec["spoil"]
        whole[min(position, len(whole) - 1)] ^= byte
    return bytes(whole)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


#: What follows from the rest, and depends on the time of day.
_NOT_COMPARED: Final = ("crc", "batch_length", "base_offset")


def described_batches(data: bytes | None) -> Any:
    """The batches of a Fetch answer: headers without checksums, and their records; a part of one at the end goes."""
    if data is None:
        return None
    position, batches = 0, []
    while len(data) - position >= HEADER_SIZE_BYTES:
        header = parse_batch_header(data, position)
        if header.size_bytes > len(data) - position:
            break
        batches.append(_described(data, position, header))
        position += header.size_bytes
    return batches


def _described(data: bytes, position: int, header: Any) -> dict[str, Any]:
    described = {name: value for name, value in header._asdict().items() if name not in _NOT_COMPARED}
    described["at"] = header.base_offset
    payload = data[position + HEADER_SIZE_BYTES : position + header.size_bytes]
    if header.is_control:
        return described | {"rows": [[each.offset, each.key] for each in iter_records(data, position)]}
    try:
        records = [list(each) for each in iter_records(data, position)]
    except Exception:  # noqa: BLE001 - what cannot be read is compared as it is
        return described | {"payload": payload}
    return described | {"rows": records}
