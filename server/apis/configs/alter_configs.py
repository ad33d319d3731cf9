"""AlterConfigs (33): replaces all configs of a resource with the named ones; the older of the two ways to change them.

Each resource is answered separately, and changes entirely or not at all.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.configs.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.server.apis.configs.config_requests import alter
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.ALTER_CONFIGS, BY_HANDLER, forwarded=True, changes_metadata=True)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    asked = [
        (
            (resource.resource_type, resource.resource_name),
            [
                ConfigChange(config.name, ConfigOperation.SET, config.value)
                async for config in context.work.over(resource.configs, counts=False)
            ],
        )
        async for resource in context.work.over(request.resources)
    ]
    outcomes = await alter(asked, context.broker, context.access, replace=True, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=type_, resource_name=name
            )
            async for ((type_, name), _), (code, message) in context.work.over(zip(asked, outcomes, strict=True))
        ]
    )
