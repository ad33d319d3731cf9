"""A coverage-guided fuzzer over record batches: `make fuzz`, or `tests/fuzz/fuzz_records.py -runs=100000`.

Whatever the bytes, only RecordError may come out, no reader may disagree with another, and what was read can be built
and read again. The first byte of an input chooses what the rest is: a sequence of batches, or the (compressed) records
of one batch whose header is right, so that the fuzzer gets behind it. The arguments are libFuzzer's; without a
corpus directory a temporary one is filled with batches of every codec. Needs atheris.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ottla.kproto.records"]):
    from ottla.kproto.records import (
        BatchHeader,
        Compression,
        EndTxnMarker,
        Record,
        RecordError,
        build_batch,
        build_end_txn_marker,
        crc_matches,
        decompress,
        iter_batches,
        iter_keys,
        iter_positions,
        iter_records,
        parse_batch_header,
        parse_end_txn_marker,
        rebuild_batch,
        validate_batch,
        whole_batches_size_bytes,
    )
    from ottla.kproto.records.builder import assemble_batch

LIMIT_BYTES = 1 << 16
_HEADER = parse_batch_header(build_batch([Record(timestamp_ms=0)]))


def _batches(buf: bytes) -> None:
    for pos, header in iter_batches(buf):
        crc_matches(buf, pos, header)
        try:
            validate_batch(header)
            _records(buf, pos, header)
        except RecordError:
            continue
    if whole_batches_size_bytes(buf) != len(buf):
        raise AssertionError("the walk found whole batches only, the count did not")


def _records(buf: bytes, pos: int, header: BatchHeader) -> None:
    records = list(iter_records(buf, pos, header, limit_bytes=LIMIT_BYTES))
    positions = list(iter_positions(buf, pos, header, limit_bytes=LIMIT_BYTES))
    if positions != [(record.offset, record.timestamp_ms) for record in records]:
        raise AssertionError("positions disagree with the records")
    keys = list(iter_keys(buf, pos, header, limit_bytes=LIMIT_BYTES))
    if keys != [(record.offset, record.key, record.value is None) for record in records]:
        raise AssertionError("keys disagree with the records")
    if header.is_control:
        parse_end_txn_marker(buf, pos, header)
    strict = list(iter_records(buf, pos, header, strict=True, limit_bytes=LIMIT_BYTES))
    rebuilt = rebuild_batch(header, strict)
    if list(iter_records(rebuilt, limit_bytes=LIMIT_BYTES)) != records:
        raise AssertionError("a rebuilt batch reads differently")


def _payload(choice: int, payload: bytes) -> None:
    """Records in a batch that says what a right one would: codec and count come from the choice byte."""
    count = choice >> 3
    header = _HEADER._replace(
        attributes=choice & 7, record_count=count, last_offset_delta=max(count, 1) - 1, max_timestamp_ms=2**62
    )
    batch = assemble_batch(header, payload)
    validate_batch(parse_batch_header(batch))
    _records(batch, 0, parse_batch_header(batch))


def _decompress(choice: int, payload: bytes) -> None:
    if len(decompress(Compression(choice % len(Compression)), payload, LIMIT_BYTES)) > LIMIT_BYTES:
        raise AssertionError("more than the limit came out")


def one_input(data: bytes) -> None:
    if len(data) < 2:
        return
    try:
        match data[0] % 3:
            case 0:
                _batches(data[1:])
            case 1:
                _payload(data[1], data[2:])
            case _:
                _decompress(data[1], data[2:])
    except RecordError:
        return


def _write_corpus(folder: Path) -> None:
    records = [
        Record(timestamp_ms=1_000 + n * 300, key=b"k" * (n % 3), value=b"v" * n * 9, headers=(("h", None),) * (n % 2))
        for n in range(12)
    ]
    marker = build_end_txn_marker(EndTxnMarker(1, 2, 3, is_commit=True), timestamp_ms=5)
    (folder / "marker").write_bytes(b"\x00" + marker)
    for codec in Compression:
        batch = build_batch(records, compression=codec)
        choice = bytes([codec | len(records) << 3])
        (folder / f"batches-{codec.name}").write_bytes(b"\x00" + batch + batch)
        (folder / f"payload-{codec.name}").write_bytes(b"\x01" + choice + batch[61:])
        (folder / f"decompress-{codec.name}").write_bytes(b"\x02" + bytes([codec]) + batch[61:])


def main() -> None:
    arguments = list(sys.argv)
    with tempfile.TemporaryDirectory() as corpus:
        if all(argument.startswith("-") for argument in arguments[1:]):
            _write_corpus(Path(corpus))
            arguments.append(corpus)
        atheris.Setup(arguments, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
