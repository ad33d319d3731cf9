"""The administrative calls of the Python clients: `python -m compat_tests.scenarios.admin_programs NAME HOST:PORT`.

A line of JSON for each call, {"name": call, "result": text}; a failure's text is its type and message.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

PATIENCE_S = 120


def say(name: str, result: Any) -> None:
    print(json.dumps({"name": name, "result": text(result)}), flush=True)


def text(value: Any) -> str:
    """Without what differs from run to run: addresses of objects, and the order of what has none."""
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, Mapping):
        return str(sorted(f"{text(key)}={text(each)}" for key, each in value.items()))
    if isinstance(value, list | set | tuple | frozenset):
        return str(sorted(text(each) for each in value))
    if hasattr(value, "__dict__") and " object at 0x" in repr(value):
        return text({name: each for name, each in vars(value).items() if not name.startswith("_")})
    return str(value)


def ask(name: str, call: Callable[[], Any], *, until: Callable[[Any], bool] = lambda _: True) -> None:
    """Make a call; of the futures that it gives, each is awaited.

    It is made again while a coordinator is not ready, and `until` the answer is as it will be: Kafka answers a change
    before all of its metadata say so.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        result = _answer(call)
        if time.monotonic() > deadline or ("COORDINATOR" not in text(result) and until(result)):
            break
        time.sleep(0.1)
    say(name, result)


def _are_three(topics: Any) -> bool:
    return [len(partitions) for partitions in topics] == [3]


def _answer(call: Callable[[], Any]) -> Any:
    try:
        result = call()
        if isinstance(result, Mapping):
            return {key: settled(future) for key, future in result.items()}
        return settled(result)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return error


def settled(future: Any) -> Any:
    if not hasattr(future, "result"):
        return future
    try:
        return future.result(15)
    except Exception as error:  # noqa: BLE001
        return error


def confluent(bootstrap: str) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicCollection, TopicPartition

    ka: Any = importlib.import_module("confluent_kafka.admin")
    topic = "confluent"
    admin = ka.AdminClient({"bootstrap.servers": bootstrap})
    whole = ka.ConfigResource(ka.ResourceType.TOPIC, topic)
    acl = (ka.ResourceType.TOPIC, topic, ka.ResourcePatternType.LITERAL, "User:ann", "*")
    right = (ka.AclOperation.READ, ka.AclPermissionType.ALLOW)
    changed = ka.ConfigEntry("cleanup.policy", "compact", incremental_operation=ka.AlterConfigOpType.SET)
    ask("create_topics", lambda: admin.create_topics([ka.NewTopic(topic, 2, 1), ka.NewTopic("wide", 1, 3)]))
    ask("create_partitions", lambda: admin.create_partitions([ka.NewPartitions(topic, 3)]))
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(5):
        producer.produce(topic, str(n), partition=0, timestamp=1000 + n)
    producer.flush()
    first = TopicPartition(topic, 0)
    for name, spec in (
        ("latest", ka.OffsetSpec.latest()), ("earliest", ka.OffsetSpec.earliest()),
        ("max timestamp", ka.OffsetSpec.max_timestamp()), ("timestamp", ka.OffsetSpec.for_timestamp(1003)),
    ):  # fmt: skip
        ask(f"list_offsets {name}", lambda spec=spec: {"": admin.list_offsets({first: spec})[first]})  # type: ignore[misc]
    ask("delete_records", lambda: {"": admin.delete_records([TopicPartition(topic, 0, 2)])[first]})
    ask("list_topics", lambda: sorted(admin.list_topics(topic, PATIENCE_S).topics[topic].partitions))
    ask("describe_topics", lambda: {
        name: [len(it.partitions), it.is_internal, it.name] if (it := settled(future)) else it
        for name, future in admin.describe_topics(TopicCollection([topic])).items()
    })  # fmt: skip
    ask(
        "describe_cluster",
        lambda: (it := admin.describe_cluster().result(PATIENCE_S)) and [it.controller.id, len(it.nodes)],
    )
    ask("describe_configs", lambda: {
        config.name: [config.value, config.source, config.is_read_only, config.is_sensitive, sorted(config.synonyms)]
        for config in admin.describe_configs([whole])[whole].result(PATIENCE_S).values()
        if config.name in ("retention.ms", "cleanup.policy", "segment.bytes")
    })  # fmt: skip
    whole = ka.ConfigResource(ka.ResourceType.TOPIC, topic, incremental_configs=[changed])
    ask("incremental_alter_configs", lambda: {"": admin.incremental_alter_configs([whole])[whole]})
    offsets = ConsumerGroupTopicPartitions("python", [TopicPartition(topic, 0, 3)])
    ask("alter_consumer_group_offsets", lambda: {
        group: [it.error for it in settled(future).topic_partitions]
        for group, future in admin.alter_consumer_group_offsets([offsets]).items()
    })  # fmt: skip
    ask("list_consumer_group_offsets", lambda: [
        it.offset for it in admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("python")])["python"]
        .result(PATIENCE_S).topic_partitions
    ])  # fmt: skip
    ask("list_consumer_groups", lambda: [
        [it.group_id, it.state, it.type] for it in admin.list_consumer_groups().result(PATIENCE_S).valid
    ])  # fmt: skip
    ask("describe_consumer_groups", lambda: {
        name: [it.state, it.is_simple_consumer_group, it.type, len(it.members)]
        for name, future in admin.describe_consumer_groups(["python"]).items() if (it := future.result(PATIENCE_S))
    })  # fmt: skip
    ask("delete_consumer_groups", lambda: admin.delete_consumer_groups(["python", "nobody"]))
    ask("describe_acls", lambda: admin.describe_acls(ka.AclBindingFilter(*acl, *right)))
    ask("create_acls", lambda: {"": next(iter(admin.create_acls([ka.AclBinding(*acl, *right)]).values()))})
    ask("describe_user_scram_credentials", lambda: admin.describe_user_scram_credentials(["nobody"]))
    election = ka.ElectionType.PREFERRED if hasattr(ka, "ElectionType") else None
    if election is not None:
        ask("elect_leaders", lambda: {"": admin.elect_leaders(election, [first]).result(PATIENCE_S)[first]})
    ask("delete_topics", lambda: admin.delete_topics([topic, "nope"]))


def kafka_python(bootstrap: str) -> None:
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

    topic = "kafka-python"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    ask("create_topics", lambda: admin.create_topics([NewTopic(topic, 2, 1)]) and "made")
    ask("create_topics, again", lambda: admin.create_topics([NewTopic(topic, 2, 1)]))
    ask("create_partitions", lambda: admin.create_partitions({topic: NewPartitions(3)}) and "grown")
    ask("list_topics", lambda: topic in admin.list_topics())
    ask("describe_topics", lambda: [
        sorted((p["partition_index"], p["leader_id"]) for p in it["partitions"])
        for it in admin.describe_topics([topic])
    ], until=_are_three)  # fmt: skip
    ask("describe_cluster", lambda: admin.describe_cluster()["controller_id"])
    whole = ConfigResource(ConfigResourceType.TOPIC, topic)
    ask("describe_configs", lambda: len(str(admin.describe_configs([whole]))) > 100)
    ask("list_consumer_groups", lambda: [it for it in admin.list_consumer_groups() if "nobody" in str(it)])
    ask("list_consumer_group_offsets", lambda: admin.list_consumer_group_offsets("nobody"))
    ask("delete_records", lambda: admin.delete_records({TopicPartition(topic, 0): 0}))
    ask("describe_log_dirs", lambda: topic in str(admin.describe_log_dirs()))
    ask("delete_topics", lambda: admin.delete_topics([topic]) and "deleted")
    admin.close()


def aiokafka(bootstrap: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.structs import TopicPartition

    topic = "aiokafka"

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()

        async def ask_it(
            name: str, call: Callable[[], Awaitable[Any]], *, until: Callable[[Any], bool] = lambda _: True
        ) -> None:
            deadline = time.monotonic() + PATIENCE_S
            try:
                while True:
                    result = call()
                    answer = await result if inspect.isawaitable(result) else result
                    if until(answer) or time.monotonic() > deadline:
                        break
                    await asyncio.sleep(0.1)
                say(name, answer)
            except Exception as error:  # noqa: BLE001
                say(name, error)

        def found(*parts: str) -> Callable[[Any], list[bool]]:
            return lambda answer: [part in str(answer) for part in parts]

        async def checked(call: Awaitable[Any], check: Callable[[Any], Any]) -> Any:
            return check(await call)

        await ask_it("create_topics", lambda: admin.create_topics([NewTopic(topic, 2, 1)]))
        await ask_it("create_topics, again", lambda: admin.create_topics([NewTopic(topic, 2, 1)]))
        await ask_it("create_partitions", lambda: admin.create_partitions({topic: NewPartitions(3)}))
        await ask_it("list_topics", lambda: checked(admin.list_topics(), found(topic)))
        await ask_it("describe_topics", lambda: checked(admin.describe_topics([topic]), lambda them: [
            sorted((p["partition"], p["leader"]) for p in it["partitions"]) for it in them
        ]), until=_are_three)  # fmt: skip
        await ask_it("describe_cluster", lambda: checked(admin.describe_cluster(), lambda it: it["controller_id"]))
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        await ask_it("describe_configs", lambda: checked(admin.describe_configs([resource]), found("retention.ms")))
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "5000"})
        await ask_it("alter_configs", lambda: admin.alter_configs({resource: changed}.values()))
        await ask_it("list_consumer_groups", lambda: checked(admin.list_consumer_groups(), found("nobody")))
        await ask_it("list_consumer_group_offsets", lambda: admin.list_consumer_group_offsets("nobody"))
        await ask_it("delete_records", lambda: admin.delete_records({TopicPartition(topic, 0): 0}))
        await ask_it("delete_topics", lambda: admin.delete_topics([topic]))
        await admin.close()

    asyncio.run(run())


PROGRAMS = {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[2])
