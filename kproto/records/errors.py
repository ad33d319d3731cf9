"""What can be wrong with record batches."""

from ottla.kproto.errors import ErrorCode, ProtocolError


class RecordError(ProtocolError):
    """The common base of everything that reading, checking or building record batches raises."""


class CorruptRecordError(RecordError):
    """The bytes are not a well-formed record batch: truncated, a bad length, a wrong CRC, an undecodable payload."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecordError(RecordError):
    """Well-formed bytes whose content breaks a rule of the format (counts, sequences, attributes, deltas)."""

    code = ErrorCode.INVALID_RECORD


class UnsupportedMagicError(RecordError):
    """A batch of another format than v2; Apache Kafka 4.0 removed v0 and v1 as well (KIP-724)."""

    code = ErrorCode.INVALID_RECORD


class UnsupportedCompressionError(RecordError):
    """The attributes name a compression codec that does not exist."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class DecompressedSizeError(RecordError):
    """The records would inflate beyond the limit that the caller gave."""

    code = ErrorCode.MESSAGE_TOO_LARGE
