"""How a client says who it is, and by which settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import AuthenticationError, SecurityConfigError
from ottla.client.jaas import JaasError, parse_jaas
from ottla.client.protocol import ClientProtocol, State
from ottla.client.security import NO_SECURITY, Login, from_properties
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeResponse
from tests.client.brokers import BrokerSide, answer, versions

PLAIN = Login("PLAIN", "alice", "wonder")
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="w=o;nd er";'


class TestJaas:
    def test_names_and_values(self) -> None:
        module = parse_jaas(JAAS)
        assert module.name == "ScramLoginModule"
        assert module.options == {"username": 'al"ice', "password": "w=o;nd er"}

    def test_over_several_lines_and_without_quotes(self) -> None:
        module = parse_jaas("PlainLoginModule\n  required\n user_a=b\n user_c = d ;\n")
        assert module.options == {"user_a": "b", "user_c": "d"}

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "x",
            "A required",
            "A maybe x=y;",
            "A required x;",
            "A required x=;",
            'A required x="y',
            "A required; B required;",
        ],
    )
    def test_what_is_no_login_module(self, text: str) -> None:
        with pytest.raises(JaasError):
            parse_jaas(text)

    @given(st.text("ab =;\"'\\\n", max_size=30))
    def test_any_text_is_parsed_or_refused(self, text: str) -> None:
        try:
            options = parse_jaas(text).options
        except JaasError:
            options = {}
        assert all(value == "" or value[0] in text for value in options.values())


class TestProperties:
    def test_nothing_is_plain_text(self) -> None:
        assert from_properties({"acks": "all"}) == NO_SECURITY

    def test_javas_and_librdkafkas_names(self) -> None:
        expected = Login("SCRAM-SHA-512", 'al"ice', "w=o;nd er")
        java = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}
        assert from_properties(java).login == expected
        librdkafka = {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": 'al"ice',
            "sasl.password": "w=o;nd er",
        }
        assert from_properties(librdkafka).login == expected
        assert "nd er" not in repr(expected)

    @pytest.mark.parametrize(
        ("properties", "words"),
        [
            ({"security.protocol": "TLS"}, "known are"),
            ({"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI"),
            ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "needs a user"),
            ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, "read"),
        ],
    )
    def test_what_is_wrong(self, properties: dict[str, str], words: str) -> None:
        with pytest.raises(SecurityConfigError, match=words):
            from_properties(properties)


class TestProtocol:
    def begun(self) -> tuple[ClientProtocol, BrokerSide]:
        """A connection whose handshake is answered; the first message is on its way."""
        protocol, broker = ClientProtocol("broker:9092", "tester", login=PLAIN), BrokerSide()
        protocol.start()
        (asked,) = broker.feed(protocol.data_to_send())
        protocol.feed(versions(asked))
        assert protocol.state is State.AUTHENTICATING
        (asked,) = broker.feed(protocol.data_to_send())
        assert (asked.key, asked.version) == (ApiKey.SASL_HANDSHAKE, 1)
        protocol.feed(answer(asked, SaslHandshakeResponse(mechanisms=["PLAIN"])))
        return protocol, broker

    def test_it_is_open_when_the_broker_lets_in(self) -> None:
        protocol, broker = self.begun()
        (asked,) = broker.feed(protocol.data_to_send())
        assert isinstance(asked.request, SaslAuthenticateRequest)
        assert bytes(asked.request.auth_bytes) == b"\0alice\0wonder"
        assert protocol.feed(answer(asked, SaslAuthenticateResponse(session_lifetime_ms=5000))) == []
        assert protocol.state is State.OPEN
        assert protocol.session_lifetime_ms == 5000
        protocol.authenticate_again()
        (asked,) = broker.feed(protocol.data_to_send())
        assert asked.key is ApiKey.SASL_HANDSHAKE

    def test_a_refusal_is_told_in_the_brokers_words(self) -> None:
        protocol, broker = self.begun()
        (asked,) = broker.feed(protocol.data_to_send())
        refused = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="not you")
        with pytest.raises(AuthenticationError, match="refuses to let us in: not you"):
            protocol.feed(answer(asked, refused))
        assert protocol.state is State.LOST

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "only OAUTHBEARER"),
            (ErrorCode.ILLEGAL_SASL_STATE, "no authentication"),
        ],
    )
    def test_a_handshake_that_fails(self, code: ErrorCode, words: str) -> None:
        protocol, broker = ClientProtocol("broker:9092", "tester", login=PLAIN), BrokerSide()
        protocol.start()
        protocol.feed(versions(broker.feed(protocol.data_to_send())[0]))
        (asked,) = broker.feed(protocol.data_to_send())
        with pytest.raises(AuthenticationError, match=words):
            protocol.feed(answer(asked, SaslHandshakeResponse(error_code=code, mechanisms=["OAUTHBEARER"])))
