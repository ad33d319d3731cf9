"""What the server raises where a connection, and not one request's answer, is concerned."""


class ServerError(Exception):
    """Base of what the broker raises on purpose outside storage, metadata, replica manager and coordinators."""


class CloseConnectionError(ServerError):
    """The connection has to end: its peer broke the protocol, or Kafka answers this case by closing.

    The text is the one log line that an operator reads. Never a bug of ours: those are answered and logged in full.
    """


class StartupError(ServerError):
    """The broker cannot start; the text says why and what to do about it."""
