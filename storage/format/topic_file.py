"""The name of the file in a store's folder that says which topic it is of, in the words of who owns the metadata."""

from __future__ import annotations

from typing import Final

__all__ = ["TOPIC_FILE"]

TOPIC_FILE: Final = "topic.json"
