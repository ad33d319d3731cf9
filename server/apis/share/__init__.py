"""Share groups: their members, records, offsets and state."""

# The node makes these when they are first asked for, on the event loop; so they are imported here, in a worker thread.
import ottla.coordinator.share.cluster
import ottla.coordinator.share.coordinator
import ottla.coordinator.share.topics
import ottla.server.apis.groups
import ottla.server.apis.other_share_coordinators
import ottla.server.share.config
import ottla.server.share.dead_letters
import ottla.server.share.manager  # noqa: F401
