"""Our declarations against Kafka's own message definitions, field by field.

The definitions are read from the jars of Apache Kafka 4.4.0 at test time (`make jars` puts them into .jars/kafka-4.4/);
nothing of them is kept here.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import FRESH, ZERO_UUID, Field, Message, Primitive, Request, Struct, StructType
from ottla.kproto.versions import NO_VERSIONS, VersionRange

KAFKA_VERSION = "4.4.0"
JARS = ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-share-coordinator")

ABSENT = {
    f"{name}{kind}": "removed by Kafka 4.0; the definition only keeps the key taken"
    for name in ("ControlledShutdown", "LeaderAndIsr", "StopReplica", "UpdateMetadata")
    for kind in ("Request", "Response")
} | {"AbortedTxn": "an entry of Kafka's transaction index, a file that Ottla's storage does not have"}
"""Official messages that are absent on purpose, with the reason."""

RENAMED = {("RequestHeader", "request_api_key"): "api_key", ("RequestHeader", "request_api_version"): "api_version"}


def _jar(name: str) -> Path | None:
    file = f"{name}-{KAFKA_VERSION}.jar"
    here = Path(__file__).resolve().parents[2] / ".jars" / "kafka-4.4" / file
    maven = Path(os.environ.get("HOME", "/")) / ".m2/repository/org/apache/kafka" / name / KAFKA_VERSION / file
    return next((path for path in (here, maven) if path.is_file()), None)


@pytest.fixture(scope="module")
def official() -> dict[str, Any]:
    """Every official message definition, by its name."""
    found = {}
    for name in JARS:
        jar = _jar(name)
        if jar is None:
            pytest.skip(f"{name}-{KAFKA_VERSION}.jar is not in .jars/kafka-4.4; `make jars` fetches it")
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.startswith("common/message/") and entry.endswith(".json"):
                    definition = _read_definition(archive.read(entry).decode())
                    found[definition["name"]] = definition
    return found


def _read_definition(text: str) -> Any:
    """Kafka's definitions are JSON with whole-line // comments."""
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def declared(every_message_class: list[type[Message]]) -> dict[str, type[Message]]:
    return {cls.__name__: cls for cls in every_message_class}


def test_no_message_is_missing(official: dict[str, Any], declared: dict[str, type[Message]]) -> None:
    assert sorted(set(official) - set(declared) - set(ABSENT)) == []
    assert sorted(set(ABSENT) & set(declared)) == []


def test_no_message_is_invented(official: dict[str, Any], declared: dict[str, type[Message]]) -> None:
    assert sorted(set(declared) - set(official)) == []


def test_every_field_is_as_officially_defined(
    official: dict[str, Any], declared: dict[str, type[Message]]
) -> None:  # fmt: skip
    differences = []
    for name, cls in declared.items():
        definition = official[name]
        common = {struct["name"]: struct for struct in definition.get("commonStructs", ())}
        differences += _compare_message(cls, definition)
        differences += _compare_fields(name, cls, definition["fields"], common)
    assert differences == []


def test_api_keys_are_the_official_ones(official: dict[str, Any]) -> None:
    keys = {}
    for definition in official.values():
        if definition["type"] == "request" and definition["validVersions"] != "none":
            valid = VersionRange.parse(definition["validVersions"])
            if definition.get("latestVersionUnstable"):
                valid = VersionRange(valid.lowest, valid.highest - 1)
            name = _snake_case(definition["name"].removesuffix("Request")).upper()
            keys[name] = (definition["apiKey"], valid, VersionRange.parse(definition["flexibleVersions"]))
    ours = {key.name: (int(key), key.valid_versions, key.flexible_versions) for key in ApiKey}
    assert ours == keys


def _compare_message(cls: type[Message], definition: Any) -> list[str]:
    where = cls.__name__
    found = []
    if str(cls.VERSIONS) != definition["validVersions"]:
        found.append(f"{where}: versions {cls.VERSIONS}, officially {definition['validVersions']}")
    if str(cls.FLEXIBLE_VERSIONS) != definition["flexibleVersions"]:
        found.append(f"{where}: flexible {cls.FLEXIBLE_VERSIONS}, officially {definition['flexibleVersions']}")
    if issubclass(cls, Request):
        unstable = str(cls.VERSIONS.highest) if definition.get("latestVersionUnstable") else "none"
        if str(cls.UNSTABLE_VERSIONS) != unstable:
            found.append(f"{where}: unstable {cls.UNSTABLE_VERSIONS}, officially {unstable}")
    api_key = getattr(cls, "API_KEY", getattr(cls, "RECORD_TYPE", None))
    if api_key != definition.get("apiKey"):
        found.append(f"{where}: key {api_key}, officially {definition.get('apiKey')}")
    return found


def _compare_fields(
    where: str, cls: StructType, official: list[Any], common: dict[str, Any]
) -> list[str]:  # fmt: skip
    ours = [field.name for field in cls.FIELDS]
    theirs = [RENAMED.get((where, _snake_case(field["name"])), _snake_case(field["name"])) for field in official]
    if ours != theirs:
        return [f"{where}: fields {ours}, officially {theirs}"]
    found = []
    for field, definition in zip(cls.FIELDS, official, strict=True):
        path = f"{where}.{field.name}"
        for aspect, (mine, official_one) in _aspects(field, definition).items():
            if mine != official_one:
                found.append(f"{path}: {aspect} {mine!r}, officially {official_one!r}")
        if isinstance(field.element, StructType):
            nested = definition.get("fields") or common[definition["type"].removeprefix("[]")]["fields"]
            found += _compare_fields(path, field.element, nested, common)
    return found


def _aspects(field: Field, definition: Any) -> dict[str, tuple[object, object]]:
    tagged = definition.get("taggedVersions", "none")
    return {
        "type": (_type_of(field), definition["type"]),
        "versions": (str(field.versions), str(VersionRange.parse(definition.get("versions", tagged)))),
        "nullable versions": (str(field.nullable), definition.get("nullableVersions", "none")),
        "tag": (field.tag, definition.get("tag")),
        "tagged versions": (str(field.tagged), tagged),
        "ignorable": (field.ignorable, definition.get("ignorable", False) in (True, "true")),
        "flexible versions": (
            None if field.flexible is None else str(field.flexible),
            definition.get("flexibleVersions"),
        ),
        "default": (_default_of(field), _official_default(definition)),
    }


def _type_of(field: Field) -> str:
    """Kafka's notation of the type. A nested struct whose official name is taken in its module has a suffix."""
    if field.element is None:
        return field.kind
    element = field.element.name if isinstance(field.element, Primitive) else field.element.OFFICIAL_NAME
    return f"[]{element}" if field.kind == "array" else element


def _default_of(field: Field) -> object:
    if field.default is FRESH:
        return "empty" if field.kind == "array" else "struct"
    return field.default


def _official_default(definition: Any) -> object:
    # A null of JSON is no default at all to Kafka's generator; null is the string "null".
    kind, text = definition["type"], definition.get("default")
    if text == "null":
        return None
    if text is None:
        text = ""
    if kind.startswith("[]"):
        return "empty"
    if kind[0].isupper():
        return "struct"
    zero: dict[str, object] = {
        "bool": False, "string": "", "bytes": b"", "uuid": ZERO_UUID, "records": None, "float64": 0.0,
    }  # fmt: skip
    if text == "":
        return zero.get(kind, 0)
    if kind == "bool":
        return text == "true"
    return text if kind == "string" else float(text) if kind == "float64" else int(str(text), 0)


def _snake_case(name: str) -> str:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", spaced).lower()


def test_every_declared_range_is_well_formed(every_message_class: list[type[Message]]) -> None:
    def walk(cls: StructType) -> None:
        for field in cls.FIELDS:
            assert field.versions != NO_VERSIONS
            assert field.nullable == NO_VERSIONS or field.nullable.intersection(field.versions) != NO_VERSIONS
            assert (field.tag is None) == (field.tagged == NO_VERSIONS), (cls, field)
            if isinstance(field.element, StructType):
                assert issubclass(field.element, Struct)
                walk(field.element)

    for cls in every_message_class:
        walk(cls)
