"""IncrementalAlterConfigs (44): sets, deletes, appends to and subtracts from single configs (KIP-339).

- SET and DELETE work on every config; APPEND and SUBTRACT on lists only, beginning with the default where none is set.
- Each resource is answered for itself and changes entirely or not at all. Loggers' levels are changed here too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.errors import InvalidRequestError
from ottla.server.apis.configs.config_requests import alter
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, BY_HANDLER, forwarded=True, changes_metadata=True)


async def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> IncrementalAlterConfigsResponse:
    asked = [
        ((it.resource_type, it.resource_name), await _changes(it, context))
        async for it in context.work.over(request.resources)
    ]
    outcomes = await alter(asked, context.broker, context.access, replace=False, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=type_, resource_name=name
            )
            async for ((type_, name), _), (code, message) in context.work.over(zip(asked, outcomes, strict=True))
        ]
    )


async def _changes(
    resource: AlterConfigsResource, context: RequestContext
) -> Sequence[ConfigChange] | InvalidRequestError:
    changes = []
    async for config in context.work.over(resource.configs, counts=False):
        try:
            operation = ConfigOperation(config.config_operation)
        except ValueError:
            return InvalidRequestError(f"Unknown operations type {config.config_operation}")
        changes.append(ConfigChange(config.name, operation, config.value))
    return changes
