"""What topics are called on the disk: the folder of a topic, and the file in a store's folder that describes it.

The owner of the cluster's metadata decides the content of that file.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from uuid import UUID

__all__ = ["FOLDER_NAME_CHARACTERS", "TOPIC_FILE", "topic_folder_name", "topic_id_of_folder"]

TOPIC_FILE: Final = "topic.json"

# A topic's name may have 249 characters and a file's 255: the folder's name keeps what leaves room for the id.
FOLDER_NAME_CHARACTERS: Final = 200
# Of sixteen bytes in base64, without the padding.
_ID_CHARACTERS: Final = 22


def topic_folder_name(topic: str, topic_id: UUID) -> str:
    """`<topic>.<topic id>`: the id as Kafka's tools print it, the name cut to 200 characters."""
    return f"{topic[:FOLDER_NAME_CHARACTERS]}.{urlsafe_b64encode(topic_id.bytes)[:_ID_CHARACTERS].decode()}"


def topic_id_of_folder(folder: str) -> UUID | None:
    """The topic id in the name of a topic's folder; None for other names."""
    _, dot, encoded = folder.rpartition(".")
    if not dot or len(encoded) != _ID_CHARACTERS:
        return None
    try:
        return UUID(bytes=urlsafe_b64decode(encoded + "=="))
    except ValueError:
        return None
