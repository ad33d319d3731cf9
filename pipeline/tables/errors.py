"""What jobs between topics and tables raise: each message is a sentence that says what to do."""

from __future__ import annotations

from ottla.pipeline.errors import PipelineError

__all__ = ["CheckpointError", "ConfigError", "JobError", "TableError"]


class ConfigError(PipelineError):
    """The configuration file is not what it should be."""


class CheckpointError(PipelineError):
    """The checkpoint does not go with the topic, the table or the cluster."""


class TableError(PipelineError):
    """The table cannot be written as the configuration asks."""


class JobError(PipelineError):
    """A running query failed for a reason that Spark gave."""
