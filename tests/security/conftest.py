"""Nodes with listeners that ask who is there."""

from __future__ import annotations

from tests.servers import serve_node

__all__ = ["serve_node"]
