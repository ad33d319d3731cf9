"""The name of the file in a store's folder that describes its topic, in the words of whoever owns the metadata."""

from __future__ import annotations

from typing import Final

__all__ = ["TOPIC_FILE"]

TOPIC_FILE: Final = "topic.json"
