"""What went through the partitions of one topic on this node."""


class TopicTraffic:
    """Counters that the partitions of a topic share (Kafka's BrokerTopicMetrics). They begin at zero with the process.

    Bytes in and out are those of record batches as they are stored. What followers fetch does not count as out.
    `dead_letters` counts the records that went to another topic instead, as they did not fit their schemas.
    """

    __slots__ = ("bytes_in", "bytes_out", "dead_letters", "failed_appends", "messages_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.dead_letters = 0
        self.failed_appends = 0

    def appended(self, size_bytes: int, messages: int) -> None:
        """Count a batch that was appended. One that was there already has no messages."""
        self.bytes_in += size_bytes
        self.messages_in += messages

    def append_failed(self) -> None:
        """Count an append that was refused."""
        self.failed_appends += 1

    def fetched(self, size_bytes: int) -> None:
        """Count records that a consumer gets."""
        self.bytes_out += size_bytes

    def went_elsewhere(self, records: int) -> None:
        """Count records that are dead letters now."""
        self.dead_letters += records
