"""What went through the partitions of one topic on this node."""


class TopicTraffic:
    """Counters that the partitions of a topic share (Kafka's BrokerTopicMetrics). They begin at zero with the process.

    Bytes in and out are those of record batches as they are stored. What followers fetch does not count as out.
    `dead_letters` counts the records that went to another topic instead, as they did not fit their schemas.
    """

    __slots__ = ("bytes_in", "bytes_out", "dead_letters", "failed_appends", "failed_fetches", "messages_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.dead_letters = 0
        self.failed_appends = 0
        self.failed_fetches = 0

    def went_elsewhere(self, records: int) -> None:
        """Count records that are dead letters now."""
        self.dead_letters += records
