"""Why the voters of the metadata quorum cannot be changed: there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.errors import ErrorCode
from ottla.server.apis.errors import MAX_MESSAGE_LENGTH

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.server.apis.context import RequestContext


def refusal(
    verb: str, cluster_id: str | None, voter_id: int, directory_id: UUID, context: RequestContext
) -> tuple[ErrorCode, str]:
    """Kafka's checks in its order, and its words. `verb` is Add or Remove."""
    own = context.broker.metadata.cluster_id
    if cluster_id is not None and cluster_id != own:
        message = f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        return ErrorCode.INCONSISTENT_CLUSTER_ID, message[:MAX_MESSAGE_LENGTH]
    if voter_id < 0 or not directory_id.int:
        return ErrorCode.INVALID_REQUEST, f"{verb} voter request didn't include a valid voter"
    doing = "adding" if verb == "Add" else "removing"
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {doing} voter because the kraft.version feature is 0",
    )
