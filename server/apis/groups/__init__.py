"""Groups and their offsets."""

# The node makes these when they are first asked for, on the event loop; so they are imported here, in a worker thread.
import ottla.server.coordinator.group.coordinator
import ottla.server.coordinator.group.topics
import ottla.server.coordinator.settings
import ottla.server.coordinator.transaction.coordinator
import ottla.server.coordinator.transaction.markers
import ottla.server.coordinator.transaction.other_brokers  # noqa: F401
