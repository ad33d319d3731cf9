"""Transactions about who somebody is and what they may do: SCRAM credentials, delegation tokens, ACLs.

Kafka's counterparts are ScramControlManager, DelegationTokenControlManager and AclControlManager in
org.apache.kafka.controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.metadata import keys
from ottla.metadata.acls import Acl, AclFilter, matching
from ottla.metadata.image import MetadataImage
from ottla.metadata.scram_changes import ScramDeletion, ScramUpsertion, plan_scram
from ottla.metastore.store import Compare, Delete, Operation, Put

if TYPE_CHECKING:
    from ottla.metadata.changes.transactions import Plan, Planner, RevisionOf
    from ottla.metadata.delegation_tokens import DelegationToken, TokenChanges
    from ottla.metastore.errors import MetadataError


def credentials_change(
    deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> Planner[dict[str, MetadataError | None]]:
    """See `Controller.alter_scram_credentials`."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[dict[str, MetadataError | None]]:
        changes, errors = plan_scram(image.scram_credentials, deletions, upsertions)
        compares = [Compare(key, revision_of(key)) for key in map(keys.scram, changes)]
        operations: list[Operation] = [
            Delete(keys.scram(key)) if credential is None else Put(keys.scram(key), keys.encode_scram(credential))
            for key, credential in changes.items()
        ]
        return compares, operations, errors

    return plan


def tokens_change(change: Callable[[Mapping[str, DelegationToken]], TokenChanges]) -> Planner[None]:
    """See `Controller.change_delegation_tokens`."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[None]:
        changes = {
            keys.delegation_token(token_id): token for token_id, token in change(image.delegation_tokens).items()
        }
        operations: list[Operation] = [
            Delete(key) if token is None else Put(key, keys.encode_delegation_token(token))
            for key, token in changes.items()
        ]
        return [Compare(key, revision_of(key)) for key in changes], operations, None

    return plan


def acls_creation(acls: Sequence[Acl]) -> Planner[None]:
    """See `Controller.create_acls`."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[None]:
        new = [keys.acl(acl) for acl in dict.fromkeys(acls) if acl not in image.acls]
        return [Compare(key, revision_of(key)) for key in new], [Put(key, keys.encode({})) for key in new], None

    return plan


def acls_deletion(filters: Sequence[AclFilter]) -> Planner[list[list[Acl]]]:
    """See `Controller.delete_acls`."""

    async def plan(image: MetadataImage, revision_of: RevisionOf) -> Plan[list[list[Acl]]]:
        found = matching(image.acls, filters)
        gone = [keys.acl(acl) for acl in dict.fromkeys(acl for acls in found for acl in acls)]
        return [Compare(key, revision_of(key)) for key in gone], [Delete(key) for key in gone], found

    return plan
