"""What the tests of this folder share."""

from __future__ import annotations

from tests.servers import serve_handlers, serve_node

__all__ = ["serve_handlers", "serve_node"]
