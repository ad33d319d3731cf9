"""Proxies in front of upstreams that the test plays."""

from __future__ import annotations

from tests.proxy.upstreams import serve_proxy

__all__ = ["serve_proxy"]
