"""What topics are called on the disk: the folder of a topic, and the file in a store's folder that describes it.

The owner of the cluster's metadata decides the content of that file.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["TOPIC_FILE", "topic_folder_name"]

TOPIC_FILE: Final = "topic.json"

# A topic's name may have 249 characters and a file's 255: the folder's name keeps what leaves room for the id.
_TOPIC_NAME_CHARACTERS: Final = 200


def topic_folder_name(topic: str, topic_id: UUID) -> str:
    """`<topic>.<topic id>`: the id as Kafka's tools print it, the name cut to 200 characters."""
    encoded = urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    return f"{topic[:_TOPIC_NAME_CHARACTERS]}.{encoded}"
