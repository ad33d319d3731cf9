"""Real clients that connect with TLS and SASL: each sends one record and reads it, or says why it is not let in.

How to connect is given by librdkafka's names (`security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password`,
`ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`); what each client calls these is here.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from compat_tests.clients import franz_go as franz
from compat_tests.clients import kafkajs, sarama
from compat_tests.java.tools import JavaTools

Properties = Mapping[str, str]

TIMEOUT_S: Final = 120
VALUE: Final = b"for nobody else"


class RefusedError(Exception):
    """The client was not let in; the text is the client's."""


def confluent(bootstrap: str, topic: str, properties: Properties) -> bytes:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

    refusals: list[KafkaError] = []

    def failed(error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            refusals.append(error)

    settings = {"bootstrap.servers": bootstrap, "error_cb": failed, **properties}
    producer = Producer({**settings, "message.timeout.ms": 3000})
    producer.produce(topic, VALUE)
    if producer.flush(TIMEOUT_S) or refusals:
        raise RefusedError(refusals)
    consumer = Consumer({**settings, "group.id": f"confluent-{topic}", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        return bytes(message.value() or b"")
    finally:
        consumer.close()


def kafka_python(bootstrap: str, topic: str, properties: Properties) -> bytes:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError

    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "bootstrap_timeout_ms": 3000, **_for_python(properties)}
    names = {"cafile": "ssl_cafile", "certfile": "ssl_certfile", "keyfile": "ssl_keyfile"}
    settings |= {name: properties[key] for key, name in zip(_FILES, names.values(), strict=True) if key in properties}
    if "token" in properties:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Shown(AbstractTokenProvider):  # type: ignore[misc] # the library has no types
            def token(self) -> str:
                return properties["token"]

        settings["sasl_oauth_token_provider"] = Shown()
    try:
        with KafkaProducer(**settings) as producer:
            producer.send(topic, VALUE).get(TIMEOUT_S)
    except KafkaError as error:
        raise RefusedError(repr(error)) from error
    consumer = KafkaConsumer(
        topic, **settings, group_id=f"kafka-python-{topic}", auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    try:
        return bytes(next(consumer).value)
    finally:
        consumer.close()


def aiokafka(bootstrap: str, topic: str, properties: Properties) -> bytes:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context

    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, **_for_python(properties)}
    if properties["security.protocol"].endswith("SSL"):
        named = dict(zip(("cafile", "certfile", "keyfile"), map(properties.get, _FILES), strict=True))
        settings["ssl_context"] = create_ssl_context(**named)
    if "token" in properties:
        from aiokafka.abc import AbstractTokenProvider

        class Shown(AbstractTokenProvider):  # type: ignore[misc] # the library has no types
            async def token(self) -> str:
                return properties["token"]

        settings["sasl_oauth_token_provider"] = Shown()

    async def roundtrip() -> bytes:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, VALUE)
        except KafkaError as error:
            raise RefusedError(repr(error)) from error
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, **settings, group_id=f"aiokafka-{topic}", auto_offset_reset="earliest")
        await consumer.start()
        try:
            return bytes((await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value)
        finally:
            await consumer.stop()

    return asyncio.run(roundtrip())


def kcat(bootstrap: str, topic: str, properties: Properties) -> bytes:
    words = [word for name, value in properties.items() for word in ("-X", f"{name}={value}")]
    common = ["kcat", "-b", bootstrap, *words, "-X", "message.timeout.ms=3000", "-t", topic]
    sent = subprocess.run([*common, "-P", "-p", "0"], input=VALUE, capture_output=True, check=False, timeout=TIMEOUT_S)
    if sent.returncode:
        raise RefusedError(sent.stderr.decode())
    read = subprocess.run([*common, "-C", "-e", "-q", "-o", "beginning"], capture_output=True, check=True, timeout=120)
    return read.stdout.rstrip(b"\n")


def node(bootstrap: str, topic: str, properties: Properties) -> bytes:
    asked = {"bootstrap": bootstrap, "topic": topic, "value": VALUE.decode(), "properties": dict(properties)}
    done = subprocess.run(
        ["node", str(kafkajs.FOLDER / "secure.js"), json.dumps(asked)],
        capture_output=True,
        check=False,
        text=True,
        timeout=2 * TIMEOUT_S,
    )
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout.encode()


def java(
    tools: JavaTools,
    folder: Path,
    bootstrap: str,
    topic: str,
    properties: Properties,
    own: Properties = MappingProxyType({}),
) -> bytes:
    """Java's producer and consumer, by the tools that have them; `own` are settings that only Java has."""
    path = folder / "client.properties"
    lines = {
        "delivery.timeout.ms": "4000",
        "request.timeout.ms": "3000",
        "linger.ms": "0",
        **for_java(properties),
        **own,
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    payload = folder / "payload"
    payload.write_bytes(VALUE)
    sent = tools.run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "1", "--throughput", "-1", "--payload-file", str(payload)),
        *("--bootstrap-server", bootstrap, "--command-config", str(path)),
    )
    # The tool ends well whatever became of the records.
    if sent.code or "Exception" in sent.out + sent.err:
        raise RefusedError(sent.out + sent.err)
    read = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", str(TIMEOUT_S * 1000)),
        *("--bootstrap-server", bootstrap, "--command-config", str(path)),
    )
    assert read.code == 0, read.err
    return read.out.rstrip("\n").encode()


def go(program: Path, bootstrap: str, topic: str, properties: Properties) -> bytes:
    """A program in Go that takes what it is asked for as one argument."""
    asked = {"bootstrap": bootstrap, "topic": topic, "value": VALUE.decode(), "properties": dict(properties)}
    command = [str(program), json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=2 * TIMEOUT_S)
    if done.returncode:
        raise RefusedError(done.stderr.decode())
    return done.stdout


CLIENTS: Final[Mapping[str, Callable[[str, str, Properties], bytes]]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kcat": kcat,
    "kafkajs": node,
    "franz-go": partial(go, franz.SECURE),
    "sarama": partial(go, sarama.PROGRAM),
}

_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


def missing(client: str) -> str | None:
    """What this machine lacks for a client; None if it lacks nothing."""
    if client == "kcat":
        return None if shutil.which("kcat") else "kcat is not installed"
    if client == "franz-go":
        return franz.missing()
    if client == "sarama":
        return sarama.missing()
    return kafkajs.missing() if client == "kafkajs" else None


def _for_python(properties: Properties) -> dict[str, Any]:
    """What kafka-python and aiokafka call alike."""
    names = {
        "security.protocol": "security_protocol",
        "sasl.mechanism": "sasl_mechanism",
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
        "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    }
    return {name: properties[key] for key, name in names.items() if key in properties}


def for_java(properties: Properties) -> dict[str, str]:
    """The same by Java's names."""
    found = {"security.protocol": properties["security.protocol"]}
    if mechanism := properties.get("sasl.mechanism"):
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = properties.get("sasl.jaas.config") or (
            f"org.apache.kafka.common.security.{module} required "
            f'username="{properties["sasl.username"]}" password="{properties["sasl.password"]}";'
        )
        if service := properties.get("sasl.kerberos.service.name"):
            found["sasl.kerberos.service.name"] = service
    if ca := properties.get("ssl.ca.location"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    if key := properties.get("ssl.key.location"):
        chain = Path(key).read_text() + Path(properties["ssl.certificate.location"]).read_text()
        both = Path(key).with_suffix(".both.pem")
        both.write_text(chain)
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
    return found
