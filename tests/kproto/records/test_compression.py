"""Codecs: round trips, foreign framings, and limits that hold while the data are being inflated."""

import gzip
import random
import struct
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.records import Compression, CorruptRecordError, DecompressedSizeError, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MIB = 1024 * 1024


@given(st.sampled_from(Compression), st.binary(max_size=2_000), st.integers(1, 100))
def test_round_trip_within_an_exact_limit(codec: Compression, data: bytes, times: int) -> None:
    data *= times
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(packed), 10 * MIB) == data
    if data:
        with pytest.raises(DecompressedSizeError):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Compression.GZIP, 1),
        (Compression.GZIP, 9),
        (Compression.LZ4, 1),
        (Compression.LZ4, 9),
        (Compression.LZ4, 17),
        (Compression.ZSTD, -5),
        (Compression.ZSTD, 19),
    ],
)
def test_levels_are_the_codecs_own(codec: Compression, level: int) -> None:
    data = b"".join(struct.pack(">I", number * 2654435761 % 2**32 >> 20) for number in range(20_000))
    assert decompress(codec, compress(codec, data, level)) == data


def test_a_level_changes_the_size() -> None:
    data = b"".join(struct.pack(">I", number * 2654435761 % 2**32 >> 20) for number in range(20_000))
    for codec, low, high in ((Compression.GZIP, 1, 9), (Compression.LZ4, 1, 12), (Compression.ZSTD, -20, 19)):
        assert len(compress(codec, data, high)) < len(compress(codec, data, low))


@given(st.sampled_from(CODECS), st.binary(max_size=500))
def test_arbitrary_bytes_raise_only_declared_errors(codec: Compression, data: bytes) -> None:
    try:
        decompress(codec, data, MIB)
    except (CorruptRecordError, DecompressedSizeError):
        return


@given(st.sampled_from(CODECS), st.binary(min_size=50, max_size=2_000), st.data())
def test_damaged_streams_raise_only_declared_errors(codec: Compression, data: bytes, draw: st.DataObject) -> None:
    packed = bytearray(compress(codec, data))
    packed[draw.draw(st.integers(0, len(packed) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        decompress(codec, packed, MIB)
    except (CorruptRecordError, DecompressedSizeError):
        return


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_that_ends_early_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, bytes(range(256)) * 40)
    for cut in (1, len(packed) // 2, len(packed) - 5):
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed[:-cut], MIB)


def bomb(codec: Compression) -> bytes:
    """Something small that inflates to far more than the limit, with no declared size where the codec allows that."""
    chunk = bytes(16 * MIB)
    if codec is Compression.GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(packer.compress(chunk) for _ in range(8)) + packer.flush()
    if codec is Compression.ZSTD:
        return b"".join([bytes(cramjam.zstd.compress(chunk))] * 640)
    if codec is Compression.LZ4:
        return compress(codec, chunk) * 8
    return compress(codec, chunk) * 1


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_within_the_limit(codec: Compression) -> None:
    packed = bomb(codec)
    limit = 2 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedSizeError):
            decompress(codec, packed, limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        # A zstd frame header whose content size field (8 bytes) says 10 GiB.
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\xc0\x58" + (10 << 30).to_bytes(8, "little") + bytes(20)),
        # An LZ4 descriptor with the content size flag.
        (Compression.LZ4, b"\x04\x22\x4d\x18\x68\x40" + (10 << 30).to_bytes(8, "little") + bytes(20)),
        # A raw snappy preamble of 4 GiB - 1.
        (Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20)),
    ],
)
def test_a_declared_size_beyond_the_limit_is_refused_without_work(codec: Compression, data: bytes) -> None:
    with pytest.raises(DecompressedSizeError):
        decompress(codec, data, 100 * MIB)


def test_a_snappy_block_cannot_claim_more_than_its_bytes_can_hold() -> None:
    claim_of_64_mib = b"\x80\x80\x80\x20"
    with pytest.raises(CorruptRecordError):
        decompress(Compression.SNAPPY, claim_of_64_mib + bytes(20), 100 * MIB)


def test_the_full_buffer_wording_of_the_library() -> None:
    """Growing the output depends on telling "too small" from "corrupt"."""
    for module in (cramjam.zstd, cramjam.lz4):
        with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
            module.decompress_into(bytes(module.compress(bytes(100))), bytearray(99))


def test_snappy_is_written_in_xerial_framing_and_read_in_both() -> None:
    data = bytes(range(256)) * 400
    packed = compress(Compression.SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


@pytest.mark.parametrize(
    "tail", [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x09abc", b"\x82SNAPPY\x00\x00"]
)
def test_bad_xerial_blocks_are_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, b"abc") + tail)


@pytest.mark.parametrize("tail", [b"\x00", b"abc", b"\x82SNAPPX\x00" + bytes(8)])
def test_what_is_no_block_behind_xerial_blocks_is_passed_over(tail: bytes) -> None:
    packed = compress(Compression.SNAPPY, b"abc")
    assert decompress(Compression.SNAPPY, packed + tail) == b"abc"
    assert decompress(Compression.SNAPPY, packed + packed + tail) == b"abcabc"
    with pytest.raises(DecompressedSizeError):
        decompress(Compression.SNAPPY, packed + packed, 5)


@pytest.mark.parametrize("size", [0, 3, 70_000, 1_000_000])
@pytest.mark.parametrize("options", [{}, {"content_checksum": True}, {"block_linked": True}])
def test_an_lz4_frame_ends_at_its_mark(size: int, options: dict[str, bool]) -> None:
    packer = cramjam.lz4.Compressor(**options)
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    packer.compress(data)
    packed = bytes(packer.finish())
    for tail in (b"", b"abc", packed, bytes(9)):
        assert decompress(Compression.LZ4, packed + tail) == data
        assert decompress(Compression.LZ4, memoryview(packed + tail)) == data


def test_a_gzip_member_is_followed_by_another_or_by_nothing() -> None:
    packed = gzip.compress(b"abc")
    for tail in (b"x", bytes(40), packed[:18], b"\x1f\x8b\x00" + bytes(40)):
        assert decompress(Compression.GZIP, packed + tail) == b"abc"
    with pytest.raises(CorruptRecordError):
        decompress(Compression.GZIP, packed + gzip.compress(random.Random(1).randbytes(99))[:-9])


def test_lz4_is_written_as_java_reads_it() -> None:
    """KIP-57: frame magic, version 1, independent blocks, and the right checksum of the frame descriptor."""
    packed = compress(Compression.LZ4, b"abc" * 1_000)
    flags = packed[4]
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert flags >> 6 == 1
    assert flags & 0x20
    damaged = bytearray(packed)
    damaged[6] ^= 1
    with pytest.raises(CorruptRecordError):
        decompress(Compression.LZ4, damaged)


def test_gzip_members_are_concatenated() -> None:
    data = gzip.compress(b"first ") + gzip.compress(b"second")
    assert decompress(Compression.GZIP, data) == b"first second"
    with pytest.raises(DecompressedSizeError):
        decompress(Compression.GZIP, data, 11)


def test_many_tiny_gzip_members_cost_no_quadratic_copies() -> None:
    data = gzip.compress(b"x") * 20_000
    tracemalloc.start()
    try:
        assert decompress(Compression.GZIP, data, 20_000) == b"x" * 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(data)


def test_the_limit_counts_uncompressed_data_too() -> None:
    with pytest.raises(DecompressedSizeError):
        decompress(Compression.NONE, b"abc", 2)
