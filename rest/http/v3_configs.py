"""Settings of topics, by version 3 of the API."""

from __future__ import annotations

from typing import Any, Final

from starlette.routing import Route

from ottla.rest.access import Right
from ottla.rest.http.call import JSON, Call, Proxy, route
from ottla.rest.http.v3_answers import TOPIC, known, listed, not_found, resource

#: ConfigEntry.ConfigSource of Kafka's clients, by the number that DescribeConfigs has for it.
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_DEFAULT: Final = 5


def routes(proxy: Proxy) -> list[Route]:
    """Their addresses."""
    table = {f"{TOPIC}/configs": {"GET": configs}, f"{TOPIC}/configs/{{name}}": {"GET": config}}
    return [route(proxy, path, methods, (JSON,)) for path, methods in table.items()]


async def configs(call: Call) -> Any:
    """All settings of a topic, by name."""
    path, found = await _found(call)
    shown = [_config(call, path, it) for it in sorted(found, key=lambda it: it.name)]
    return listed(call, "KafkaTopicConfigList", path, shown)


async def config(call: Call) -> Any:
    path, found = await _found(call)
    for it in found:
        if it.name == call.part("name"):
            return _config(call, path, it)
    raise not_found()


async def _found(call: Call) -> tuple[str, list[Any]]:
    await known(call, [])
    name = call.part("topic")
    call.caller.require(Right.SEE_SETTINGS, name)
    path = f"/v3/clusters/{call.part('cluster')}/topics/{name}/configs"
    return path, await call.proxy.cluster.described_configs(name)


def _config(call: Call, path: str, state: Any) -> dict[str, Any]:
    cluster, topic = call.part("cluster"), call.part("topic")
    return {
        "kind": "KafkaTopicConfig",
        "metadata": resource(
            call, f"{path}/{state.name}", ("kafka", cluster), ("topic", topic), ("config", state.name)
        ),
        "cluster_id": cluster,
        "topic_name": topic,
        "name": state.name,
        "value": state.value,
        "is_default": state.config_source == _DEFAULT,
        "is_read_only": state.read_only,
        "is_sensitive": state.is_sensitive,
        "source": _SOURCES.get(state.config_source, "UNKNOWN"),
        "synonyms": [
            {"name": it.name, "value": it.value, "source": _SOURCES.get(it.source, "UNKNOWN")} for it in state.synonyms
        ],
    }
