"""Dead-letter queues of share groups (KIP-1191)."""

from __future__ import annotations

from ottla.settings.declaration import CLUSTER_WIDE, boolean, string


class DeadLetterSettings:
    """Dead-letter queues of share groups."""

    errors_deadletterqueue_auto_create_topics_enable: bool = boolean(
        False, "Create the topic of a share group's dead-letter queue if it does not exist.", update=CLUSTER_WIDE
    )
    group_share_dlq_manager_class_name: str = string(
        "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
        "Class that writes dead letters in Kafka.",
        internal=True,
        in_use=False,
    )
    errors_deadletterqueue_topic_name_prefix: str = string(
        "dlq.", "What names of dead-letter queues must begin with; empty: any name will do.", update=CLUSTER_WIDE
    )
