"""The names of objects. Below the root that the address names there is one folder for each cluster.

    <cluster id>/topics/<topic>.<topic id>/manifests/<partition>           one for each partition: the only objects that change
    <cluster id>/topics/<topic>.<topic id>/segments/<upload id>.<part>     batches, up to 16 MiB in each object
    <cluster id>/topics/<topic>.<topic id>/segments/<upload id>.index      where they lie, for all partitions of the upload
    <cluster id>/deleted/<topic id>                                        the deletion of a topic that has begun
    <cluster id>/snapshots/metadata                                        topics and settings (`ottla.tiers.snapshot`)
    <cluster id>/snapshots/offsets/<partition>                             what groups have committed
    <cluster id>/snapshots/schemas                                         the schema registry's topic
    <cluster id>/snapshots/ends/<node id>                                  where the logs end that a node leads

An upload id is the leader epoch under which the upload was begun, and a random number: no two uploads, of whichever
leaders, ever write the same object.
"""  # noqa: E501

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from ottla.storage.format.topic_file import topic_folder_name, topic_id_of_folder

__all__ = ["TOPICS_FOLDER", "SnapshotNames", "TopicNames", "UploadId"]

TOPICS_FOLDER: Final = "topics/"
_INDEX_SUFFIX: Final = "index"


class UploadId(NamedTuple):
    """The id of an upload, different from those of all others."""

    leader_epoch: int
    number: UUID

    def __str__(self) -> str:
        return f"{self.leader_epoch:010d}-{self.number.hex}"

    @classmethod
    def parse(cls, text: str) -> UploadId | None:
        """The inverse of `str`; None if the text is something else."""
        epoch, separator, number = text.partition("-")
        try:
            found = cls(int(epoch), UUID(hex=number))
        except ValueError:
            return None
        return found if separator and str(found) == text else None


class TopicNames:
    """The names of one topic's objects."""

    def __init__(self, cluster_id: str, topic: str, topic_id: UUID) -> None:
        self.cluster_id = cluster_id
        self.topic = topic
        self.topic_id = topic_id
        self.folder = f"{cluster_id}/{TOPICS_FOLDER}{topic_folder_name(topic, topic_id)}/"
        self.manifests = f"{self.folder}manifests/"
        self.segments = f"{self.folder}segments/"
        self.deletion_note = f"{cluster_id}/deleted/{topic_id.hex}"

    @classmethod
    def of_folder(cls, cluster_id: str, folder: str) -> TopicNames | None:
        """Those of the topic whose folder has this name; None if it is no topic's.

        Of a topic's name it has the first 200 characters.
        """
        topic_id = topic_id_of_folder(folder)
        if topic_id is None:
            return None
        names = cls(cluster_id, folder.rpartition(".")[0], topic_id)
        return names if names.folder == f"{cluster_id}/{TOPICS_FOLDER}{folder}/" else None

    def manifest(self, partition: int) -> str:
        return f"{self.manifests}{partition:010d}"

    def partition_of(self, name: str) -> int | None:
        """The partition whose manifest has this name; None if it is no manifest of this topic."""
        number = name.removeprefix(self.manifests)
        return int(number) if number.isdecimal() and self.manifest(int(number)) == name else None

    def part(self, upload: UploadId, part: int) -> str:
        return f"{self.segments}{upload}.{part:06d}"

    def index(self, upload: UploadId) -> str:
        return f"{self.segments}{upload}.{_INDEX_SUFFIX}"

    def upload_prefix(self, upload: UploadId) -> str:
        return f"{self.segments}{upload}."

    def upload_of(self, name: str) -> UploadId | None:
        """The upload that an object of this topic belongs to; None for any other object."""
        if not name.startswith(self.segments):
            return None
        upload = UploadId.parse(name.removeprefix(self.segments).rpartition(".")[0])
        is_ours = upload is not None and (name == self.index(upload) or self.part_of(name) is not None)
        return upload if is_ours else None

    def part_of(self, name: str) -> int | None:
        """The number of the part that has this name; None for an index."""
        number = name.rpartition(".")[2]
        return int(number) if number.isdecimal() else None


class SnapshotNames:
    """The names of a cluster's snapshots."""

    def __init__(self, cluster_id: str) -> None:
        self.folder = f"{cluster_id}/snapshots/"
        self.metadata = f"{self.folder}metadata"
        self.schemas = f"{self.folder}schemas"
        self.all_offsets = f"{self.folder}offsets/"
        self.all_ends = f"{self.folder}ends/"

    def offsets(self, partition: int) -> str:
        """The snapshot of one partition of `__consumer_offsets`."""
        return f"{self.all_offsets}{partition:010d}"

    def ends(self, node_id: int) -> str:
        return f"{self.all_ends}{node_id:010d}"

    def partition_of(self, name: str) -> int | None:
        """The inverse of `offsets`; None for any other name."""
        number = name.removeprefix(self.all_offsets)
        return int(number) if number.isdecimal() and self.offsets(int(number)) == name else None
