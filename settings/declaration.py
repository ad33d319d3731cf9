"""How a setting is declared: a class attribute that reads as its value and carries its own description."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final, Protocol, overload

from ottla.settings import types
from ottla.settings.checks import Check
from ottla.settings.types import SettingType

_HIDDEN: Final = "[hidden]"
#: Where somebody has written a password into an address.
_USER_IN_ADDRESS: Final = re.compile(r"://[^/\s]*@")


class Importance(Enum):
    """How much a setting matters to an operator, as Kafka ranks its own."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Update(Enum):
    """How a broker's setting may change while it runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


HIGH: Final = Importance.HIGH
LOW: Final = Importance.LOW
PER_BROKER: Final = Update.PER_BROKER
CLUSTER_WIDE: Final = Update.CLUSTER_WIDE


class InvalidSettingError(ValueError):
    """A value is not one that its setting takes; the text is Kafka's."""


class Resolver(Protocol):
    """The interface of a class with settings: the current value of each."""

    def resolve(self, setting: Setting) -> Any:
        """The value that applies now, parsed."""


class Setting:
    """One declared setting.

    It is declared as an attribute whose name is Kafka's with underscores for dots. Read from an instance
    it gives the value and leaves it in the instance's own dictionary, where every further read finds it
    without coming here; read from the class it gives this description.
    """

    __slots__ = (
        "attribute",
        "broker_names",
        "check",
        "default",
        "doc",
        "importance",
        "in_use",
        "internal",
        "name",
        "type",
        "update",
    )

    def __init__(
        self,
        type_: SettingType,
        default: Any,
        doc: str,
        *,
        check: Check | None = None,
        importance: Importance = Importance.MEDIUM,
        update: Update = Update.READ_ONLY,
        in_use: bool = True,
        internal: bool = False,
        broker: str | tuple[tuple[str, int], ...] | None = None,
    ) -> None:
        self.type = type_
        self.default = default
        self.doc = doc
        self.check = check
        self.importance = importance
        self.update = update
        #: False where Ottla takes the setting, because files and tools name it, and nothing depends on it.
        self.in_use = in_use
        #: True for settings that DescribeConfigs leaves out until they are set.
        self.internal = internal
        #: The broker settings that a topic's or group's falls back to, each with the factor to this unit.
        self.broker_names: tuple[tuple[str, int], ...] = ((broker, 1),) if isinstance(broker, str) else broker or ()
        self.name = self.attribute = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, instance: None, owner: type) -> Setting: ...
    @overload
    def __get__(self, instance: Resolver, owner: type) -> Any: ...
    def __get__(self, instance: Resolver | None, owner: type) -> Any:
        if instance is None:
            return self
        value = instance.resolve(self)
        instance.__dict__[self.attribute] = value
        return value

    @property
    def sensitive(self) -> bool:
        return self.type is SettingType.PASSWORD

    @property
    def dynamic(self) -> bool:
        return self.update is not Update.READ_ONLY

    def parse(self, text: str) -> Any:
        """Read and check a value; raises InvalidSettingError with the text that Kafka gives."""
        shown = text
        try:
            value = types.parse(self.type, text)
            if self.check is not None:
                shown = str(types.to_text(self.type, value))
                self.check.validate(value)
        except ValueError as error:
            reason, *part = error.args
            shown = _HIDDEN if self.sensitive else _USER_IN_ADDRESS.sub(f"://{_HIDDEN}@", part[0] if part else shown)
            raise InvalidSettingError(f"Invalid value {shown} for configuration {self.name}: {reason}") from None
        return value

    def to_text(self, value: Any) -> str | None:
        """Write a value as DescribeConfigs shows it."""
        return types.to_text(self.type, value)


def boolean(default: bool, doc: str, **options: Any) -> Any:
    return Setting(SettingType.BOOLEAN, default, doc, **options)


def string(default: str | None, doc: str, **options: Any) -> Any:
    return Setting(SettingType.STRING, default, doc, **options)


def integer(default: int | None, doc: str, **options: Any) -> Any:
    return Setting(SettingType.INT, default, doc, **options)


def short(default: int | None, doc: str, **options: Any) -> Any:
    return Setting(SettingType.SHORT, default, doc, **options)


def long(default: int | None, doc: str, **options: Any) -> Any:
    return Setting(SettingType.LONG, default, doc, **options)


def double(default: float, doc: str, **options: Any) -> Any:
    return Setting(SettingType.DOUBLE, default, doc, **options)


def strings(default: tuple[str, ...] | None, doc: str, **options: Any) -> Any:
    return Setting(SettingType.LIST, default, doc, **options)


def java_class(default: str | None, doc: str, **options: Any) -> Any:
    return Setting(SettingType.CLASS, default, doc, **options)


def password(doc: str, **options: Any) -> Any:
    return Setting(SettingType.PASSWORD, None, doc, **options)


def settings_of(owner: type) -> dict[str, Setting]:
    """Every setting that a class declares or inherits, by Kafka's name, sorted."""
    found = {
        setting.name: setting
        for base in reversed(owner.__mro__)
        for setting in vars(base).values()
        if isinstance(setting, Setting)
    }
    return dict(sorted(found.items()))
