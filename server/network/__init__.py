"""From the sockets to the handlers: listeners, connections, frames, and the dispatcher of requests."""
