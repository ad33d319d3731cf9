"""Groups and their offsets."""

# The node makes these when they are first asked for, on the event loop; so they are imported here, in a worker thread.
import ottla.coordinator.group.coordinator
import ottla.coordinator.group.topics
import ottla.coordinator.settings
import ottla.coordinator.transaction.coordinator
import ottla.coordinator.transaction.markers
import ottla.coordinator.transaction.other_brokers  # noqa: F401
