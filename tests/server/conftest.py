"""What the tests of the server share: see tests/servers.py."""

from __future__ import annotations

from tests.servers import serve_handlers, serve_node

__all__ = ["serve_handlers", "serve_node"]
