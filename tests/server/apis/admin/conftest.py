"""The administrative handlers on a controller in memory, called with messages as they come off the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.hot import metadata as hot_metadata
from ottla.kproto.schema import Request
from ottla.metadata.controller import Controller
from ottla.metadata.image import BrokerImage, Endpoint, MetadataImage
from ottla.metastore.memory import MemoryMetadataStore
from ottla.runtime.work import Work
from ottla.server.apis.table import module_of
from ottla.server.quotas.clients import ClientQuotas
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import ManualClock
from tests.servers import answered

Call = Callable[..., Awaitable[Any]]


class FakeBroker:
    """The services that these handlers use."""

    def __init__(self, config: BrokerConfig, controller: Controller) -> None:
        self.node_id = 1
        self.config = config
        self.controller = controller
        self.clock = ManualClock(1_000)
        self.replica_manager: Any = None
        self.quotas = ClientQuotas()
        #: For how many seconds connections were muted.
        self.muted: list[float] = []

    @property
    def metadata(self) -> MetadataImage:
        return self.controller.image


@pytest.fixture
def static() -> dict[str, str]:
    """Static settings; a test module may have its own."""
    return {}


@pytest.fixture
async def broker(static: dict[str, str], nursery: trio.Nursery) -> AsyncIterator[FakeBroker]:
    config = BrokerConfig(static)
    controller = Controller(MemoryMetadataStore(), config, node_id=1)
    await nursery.start(controller.run)
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    await controller.register_broker(BrokerImage(1, (endpoint,), rack="r1"))
    broker = FakeBroker(config, controller)
    controller.subscribe(broker.quotas.apply)
    yield broker
    nursery.cancel_scope.cancel()


@pytest.fixture
def call(broker: FakeBroker) -> Call:
    """Send a request in a version and return the response; both go through the codec."""

    async def call(request: Request, version: int, listener: str = "PLAINTEXT") -> Any:
        key = request.API_KEY
        module = module_of(key)
        received = codec.parse_request(key, version, codec.build(request, version))
        context = SimpleNamespace(
            access=None,
            broker=broker,
            listener=listener,
            header=SimpleNamespace(api_version=version, client_id="test"),
            principal="User:ann",
            work=Work(),
            connection=SimpleNamespace(mute=broker.muted.append),
        )
        response = await answered(module.handle(received, context))
        if key is ApiKey.METADATA:
            return codec.parse_response(key, version, b"".join(hot_metadata.build_parts(response, version)))
        return codec.parse_response(key, version, codec.build(response, version))

    return call
