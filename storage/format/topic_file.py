"""The name of the file in a store's folder that describes its topic; whoever owns the metadata decides its content."""

from __future__ import annotations

from typing import Final

__all__ = ["TOPIC_FILE"]

TOPIC_FILE: Final = "topic.json"
