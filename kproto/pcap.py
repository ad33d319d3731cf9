"""TCP streams out of a packet capture: pcap, as tcpdump writes it, or pcapng, as Wireshark does.

Enough to look at Kafka traffic and no more: IPv4 and IPv6 over Ethernet, Linux cooked, loopback or raw links, without
reassembly of IP fragments. A stream ends where a packet is missing from the capture.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.kproto.errors import DecodeError

_MAGICS: Final = {
    b"\xd4\xc3\xb2\xa1": "<",
    b"\x4d\x3c\xb2\xa1": "<",
    b"\xa1\xb2\xc3\xd4": ">",
    b"\xa1\xb2\x3c\x4d": ">",
}
_FILE_HEADER_SIZE: Final = 24
_PCAPNG_SECTION: Final = b"\x0a\x0d\x0d\x0a"
_INTERFACE, _SIMPLE_PACKET, _ENHANCED_PACKET = 1, 3, 6
_LINK_HEADER_SIZES: Final = {0: 4, 1: 14, 101: 0, 108: 4, 113: 16, 228: 0, 229: 0, 276: 20}
_TCP: Final = 6
_FIN, _SYN, _ACK = 0x01, 0x02, 0x10


class Endpoint(NamedTuple):
    address: bytes
    port: int


class Connection(NamedTuple):
    """Both directions of one TCP connection, as far as they were captured."""

    client: Endpoint
    server: Endpoint
    from_client: bytes
    from_server: bytes


class _Segment(NamedTuple):
    source: Endpoint
    target: Endpoint
    sequence: int
    flags: int
    payload: bytes


def is_capture(data: bytes) -> bool:
    return data[:4] in _MAGICS or data[:4] == _PCAPNG_SECTION


def connections(data: bytes) -> list[Connection]:
    """The connections of a capture in the order in which they appear. Raises DecodeError for what is not one.

    The client is the endpoint that sent the SYN; if none was captured, the one with the higher port.
    """
    flows: dict[tuple[Endpoint, Endpoint], list[_Segment]] = {}
    for segment in _segments(data):
        flows.setdefault((segment.source, segment.target), []).append(segment)
    found = {}
    for source, target in flows:
        pair = frozenset((source, target))
        if pair not in found:
            client, server = _roles(source, target, flows)
            found[pair] = Connection(
                client, server, _join(flows.get((client, server), [])), _join(flows.get((server, client), []))
            )
    return list(found.values())


def _roles(
    one: Endpoint, other: Endpoint, flows: dict[tuple[Endpoint, Endpoint], list[_Segment]]
) -> tuple[Endpoint, Endpoint]:
    for client, server in ((one, other), (other, one)):
        if any(s.flags & (_SYN | _ACK) == _SYN for s in flows.get((client, server), ())):
            return client, server
    return (one, other) if one.port > other.port else (other, one)


def _join(segments: list[_Segment]) -> bytes:
    """The bytes of one direction, up to the first gap; what was sent again is taken once."""
    if not segments:
        return b""
    syn = next((s for s in segments if s.flags & _SYN), None)
    first = (syn.sequence + 1) & 0xFFFFFFFF if syn is not None else segments[0].sequence
    pieces = sorted((((s.sequence - first) & 0xFFFFFFFF, s.payload) for s in segments if s.payload), key=lambda p: p[0])
    stream = bytearray()
    for offset, payload in pieces:
        if offset > len(stream):
            break
        stream += payload[len(stream) - offset :]
    return bytes(stream)


def _segments(data: bytes) -> Iterator[_Segment]:
    for link, packet in _packets(data):
        link_size = _LINK_HEADER_SIZES.get(link)
        if link_size is None:
            raise DecodeError(f"captures of link type {link} cannot be read")
        start = link_size + 4 if link == 1 and packet[12:14] == b"\x81\x00" else link_size
        segment = _segment(packet[start:])
        if segment is not None:
            yield segment


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every captured packet with its link type."""
    if data[:4] == _PCAPNG_SECTION:
        return _pcapng_packets(data)
    if data[:4] in _MAGICS and len(data) >= _FILE_HEADER_SIZE:
        return _pcap_packets(data, _MAGICS[data[:4]])
    raise DecodeError("neither a pcap nor a pcapng file")


def _pcap_packets(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    (link,) = struct.unpack_from(order + "I", data, 20)
    pos = _FILE_HEADER_SIZE
    while pos + 16 <= len(data):
        (captured,) = struct.unpack_from(order + "I", data, pos + 8)
        yield link, data[pos + 16 : pos + 16 + captured]
        pos += 16 + captured


def _pcapng_packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The packets in enhanced and simple packet blocks; other blocks are passed over."""
    order = "<"
    links: list[int] = []
    pos = 0
    while pos + 12 <= len(data):
        if data[pos : pos + 4] == _PCAPNG_SECTION:
            order, links = ("<" if data[pos + 8 : pos + 12] == b"\x4d\x3c\x2b\x1a" else ">"), []
        kind, size = struct.unpack_from(order + "II", data, pos)
        body = data[pos + 8 : pos + size - 4]
        if size < 12:
            raise DecodeError("a block of the pcapng file is too short")
        if kind == _INTERFACE and len(body) >= 2:
            links.append(struct.unpack_from(order + "H", body)[0])
        elif kind == _ENHANCED_PACKET and len(body) >= 20:
            interface, _, _, captured = struct.unpack_from(order + "IIII", body)
            if interface >= len(links):
                raise DecodeError("a packet of the pcapng file names an interface that there is not")
            yield links[interface], body[20 : 20 + captured]
        elif kind == _SIMPLE_PACKET and links:
            yield links[0], body[4:]
        pos += size


def _segment(packet: bytes) -> _Segment | None:
    """The TCP segment in an IP packet; None for anything else, and for what was cut short."""
    if len(packet) < 20:
        return None
    if packet[0] >> 4 == 4:
        header_size, end, protocol = (packet[0] & 0xF) * 4, int.from_bytes(packet[2:4], "big"), packet[9]
        source, target = packet[12:16], packet[16:20]
    elif packet[0] >> 4 == 6:
        header_size, end, protocol = 40, 40 + int.from_bytes(packet[4:6], "big"), packet[6]
        source, target = packet[8:24], packet[24:40]
    else:
        return None
    tcp = packet[header_size:end] if end > header_size else packet[header_size:]
    if protocol != _TCP or len(tcp) < 20:
        return None
    source_port, target_port, sequence = struct.unpack_from(">HHI", tcp)
    payload = tcp[(tcp[12] >> 4) * 4 :]
    return _Segment(Endpoint(source, source_port), Endpoint(target, target_port), sequence, tcp[13], payload)
