"""UnregisterController (94): forgets a controller of a KRaft quorum (KIP-1312).

Here brokers stand for controllers. The id of a registered broker is answered with INVALID_REQUEST: `UnregisterBroker`
forgets brokers that are gone.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.errors import (
    ControllerIdNotRegisteredError,
    InvalidRequestError,
    UnsupportedFeatureLevelError,
)
from ottla.metadata.features import METADATA_VERSION, UNREGISTERED_CONTROLLERS
from ottla.metadata.image import MetadataImage
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.UNREGISTER_CONTROLLER, on_cluster(AclOperation.ALTER), forwarded=True)


def handle(request: UnregisterControllerRequest, context: RequestContext) -> UnregisterControllerResponse:
    code, message = outcome(_refusal(request.controller_id, context.broker.metadata))
    return UnregisterControllerResponse(error_code=code, error_message=message)


def _refusal(controller_id: int, image: MetadataImage) -> MetadataError:
    if controller_id == image.controller_id:
        return InvalidRequestError("Controller cannot unregister itself while it is active.")
    if image.features.get(METADATA_VERSION, 0) < UNREGISTERED_CONTROLLERS:
        return UnsupportedFeatureLevelError(
            "The current MetadataVersion is too old to support controller unregistration."
        )
    if controller_id not in image.brokers:
        return ControllerIdNotRegisteredError(f"Controller ID {controller_id} is not currently registered.")
    return InvalidRequestError(f"Controller {controller_id} is a broker: it is forgotten with its broker.")
