"""TLS and SASL of a node's listeners, which follow its settings and the files of its certificates."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata.errors import InvalidRequestError
from ottla.metadata.image import ResourceType
from ottla.security.listener_auth import ENCRYPTED, ListenerAuth, listener_auth
from ottla.server.network.endpoints import listener_protocols
from ottla.settings.config import ConfigError

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataDelta
    from ottla.security.credentials import Credentials
    from ottla.security.tls import TlsFiles
    from ottla.server.network.listener import Listeners
    from ottla.settings.config import BrokerConfig

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0
# So long a change of the metadata waits until the listeners follow it.
_PATIENCE_SECONDS: Final = 1.0


class ListenerSecurity:
    """Configures TLS and SASL of the listeners. Raises ConfigError if a listener's settings are incomplete."""

    def __init__(self, config: BrokerConfig, credentials: Credentials, listeners: Listeners) -> None:
        self._config = config
        self._listeners = listeners
        self._credentials = credentials
        self._files = self._look()
        #: The changes of settings that `run` is to follow, and what wakes it.
        self._unfollowed: list[trio.Event] = []
        self._changed = trio.Event()
        listeners.set_listener_auths(self._listener_auths())

    async def apply(self, delta: MetadataDelta) -> None:
        """Have `run` follow settings that are changed while the node runs.

        It reads files, which may be on a disk that does not answer: other changes wait no longer than a second for it.
        A start does, since nobody may be let in by other settings than those.
        """
        if any(resource.type is ResourceType.BROKER for resource in delta.changed_configs):
            followed = trio.Event()
            self._unfollowed.append(followed)
            self._changed.set()
            with trio.move_on_after(_PATIENCE_SECONDS if delta.before.revision else inf):
                await followed.wait()
            if not followed.is_set():
                logger.warning("the listeners keep their settings until the files that these name have been read")

    async def check(self, config: BrokerConfig) -> None:
        """Raise InvalidRequestError if the listeners cannot ask what these settings say. Files may have changed since
        they were read, and do not stand in the way of a change of something else.
        """
        if _of_security(config) == _of_security(self._config):
            return
        try:
            await trio.to_thread.run_sync(listener_auths, config, self._credentials, abandon_on_cancel=True)
        except ConfigError as error:
            raise InvalidRequestError(str(error)) from None

    async def run(self, look_seconds: float = _LOOK_SECONDS) -> None:
        """Follow the settings, of which what is wrong changes nothing, and read certificates again when their files
        change, until cancelled.

        A file that cannot be used is read again each time, and logged once: it may become usable without a change, by
        its permissions or when there are descriptors again.
        """
        is_encrypted = any(protocol in ENCRYPTED for protocol in listener_protocols(self._config).values())
        logged = ""
        while True:
            self._changed = trio.Event()
            if not self._unfollowed:
                with trio.move_on_after(look_seconds if is_encrypted else inf):
                    await self._changed.wait()
            if self._unfollowed:
                await self._follow()
                continue
            files = await trio.to_thread.run_sync(self._look, abandon_on_cancel=True)
            if files == self._files:
                continue
            wrong = await self._renew()
            if not wrong:
                self._files = files
                logger.info("new connections get the new certificates")
            elif wrong != logged:
                logger.warning("the listeners keep their certificates: %s", wrong, extra={"error": wrong})
            logged = wrong

    async def _follow(self) -> None:
        unfollowed, self._unfollowed = self._unfollowed, []
        try:
            wrong = await self._renew()
            if wrong:
                logger.warning("the listeners keep their settings: %s", wrong, extra={"error": wrong})
        finally:
            for followed in unfollowed:
                followed.set()

    async def _renew(self) -> str:
        """Give the listeners what holds now; says what is wrong if they keep what they have."""
        try:
            renewed = await trio.to_thread.run_sync(self._listener_auths, abandon_on_cancel=True)
        except ConfigError as error:
            return str(error)
        self._listeners.set_listener_auths(renewed)
        return ""

    def _look(self) -> list[TlsFiles]:
        from ottla.security.tls import tls_files

        return [
            tls_files(self._config, name)
            for name, protocol in listener_protocols(self._config).items()
            if protocol in ENCRYPTED
        ]

    def _listener_auths(self) -> dict[str, ListenerAuth]:
        return listener_auths(self._config, self._credentials)


def _of_security(config: BrokerConfig) -> list[dict[str, str]]:
    """The dynamic settings of authentication, of this broker and of the cluster."""
    return [
        {name: text for name, text in layer.items() if "ssl." in name or "sasl." in name}
        for layer in (config.dynamic, config.dynamic_default)
    ]


def listener_auths(config: BrokerConfig, credentials: Credentials) -> dict[str, ListenerAuth]:
    """TLS and SASL of each listener that has either. Reads files, and raises ConfigError."""
    return {
        name: listener_auth(config, name, protocol, credentials)
        for name, protocol in listener_protocols(config).items()
        if protocol != "PLAINTEXT"
    }
