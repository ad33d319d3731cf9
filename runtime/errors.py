"""What ends a connection, whoever serves it."""


class CloseConnectionError(Exception):
    """The connection has to end: its peer broke the protocol, or Kafka answers this case by closing.

    The text is the one log line that an operator reads. Never a bug of ours: those are answered and logged in full.
    """
