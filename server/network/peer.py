"""Recognising what speaks to us when it is not a Kafka client, so that the log line helps."""

_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")


def describe_first_bytes(data: bytes | memoryview) -> str | None:
    """A sentence on what the first bytes of a stream look like, or None if they look like nothing known."""
    first = bytes(data[:4])
    if first[:2] == b"\x16\x03":
        return "it looks like a TLS handshake, but this listener is not encrypted: use security.protocol=PLAINTEXT"
    if first in _HTTP_METHODS:
        return "it looks like an HTTP request, but this port speaks Kafka's protocol"
    if first == b"SSH-":
        return "it looks like an SSH client"
    return None
