"""What the pipeline raises: each message is a sentence that says what is wrong and what to do."""

from __future__ import annotations

__all__ = [
    "BrokerUnavailableError",
    "DataLossError",
    "DecodingError",
    "FencedError",
    "OptionError",
    "PipelineError",
    "RowError",
    "StoreError",
    "TopicError",
]


class PipelineError(Exception):
    """The common base."""


class OptionError(PipelineError):
    """An option is unknown, malformed, or does not go with another."""


class BrokerUnavailableError(PipelineError):
    """No broker answered in time."""


class TopicError(PipelineError):
    """A topic or partition does not exist, or may not be read."""


class DataLossError(PipelineError):
    """Records that should have been read are no longer there."""


class DecodingError(PipelineError):
    """Bytes that should be record batches are not."""


class FencedError(PipelineError):
    """A transaction is no longer this producer's: it took too long, or another run has taken over."""


class RowError(PipelineError):
    """A row that cannot become a record."""


class StoreError(PipelineError):
    """A store's folder or one of its files cannot be read."""
