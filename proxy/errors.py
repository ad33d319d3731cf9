"""Errors of the proxy. Each text is one sentence for people."""

from __future__ import annotations


class ProxyError(Exception):
    """The proxy cannot start, or cannot continue."""


class RefusedError(Exception):
    """Something that one side of a connection sent cannot be forwarded: the connection ends, with one log line."""


class NotLetInError(Exception):
    """A client is not let in, or no longer: its connection ends, with one log line."""


class EndOfStreamError(Exception):
    """One side closed in the middle of a frame."""


class StalledError(ProxyError):
    """A connection held memory, and nothing moved on it."""
