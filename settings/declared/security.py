"""Authentication, encryption and authorization."""

from __future__ import annotations

from ottla.settings.checks import DISTINCT_VALUES, between, one_of
from ottla.settings.declaration import (
    HIGH,
    LOW,
    PER_BROKER,
    boolean,
    double,
    integer,
    java_class,
    long,
    password,
    short,
    string,
    strings,
)


class SecuritySettings:
    """Authentication, encryption and authorization."""

    authorizer_class_name: str = string(
        "",
        "Who decides who may do what: org.apache.kafka.metadata.authorizer.StandardAuthorizer, by ACLs; nobody if it "
        "is empty.",
        importance=LOW,
    )
    super_users: str = string(
        "", "Principals that may do everything, as User:name, with semicolons in between.", internal=True
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everybody may use what no access control entry names.", internal=True
    )
    principal_builder_class: str = java_class(
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Class that makes a principal in Kafka.",
        update=PER_BROKER,
        in_use=False,
    )
    security_providers: str | None = string(None, "Java security providers.", importance=LOW, in_use=False)
    delegation_token_secret_key: str | None = password(
        "Secret that delegation tokens are signed with, the same on all brokers; unset turns them off."
    )
    delegation_token_max_lifetime_ms: int = long(
        604_800_000, "A delegation token cannot be renewed beyond this age.", check=between(1)
    )
    delegation_token_expiry_time_ms: int = long(
        86_400_000, "A delegation token must be renewed within this time.", check=between(1)
    )
    delegation_token_expiry_check_interval_ms: int = long(
        3_600_000, "How often expired delegation tokens are removed.", check=between(1), importance=LOW
    )
    sasl_enabled_mechanisms: tuple[str, ...] = strings(
        ("GSSAPI",), "SASL mechanisms that clients may use.", check=DISTINCT_VALUES, update=PER_BROKER
    )
    sasl_jaas_config: str | None = password(
        "Login settings of a listener's SASL mechanism, in JAAS form.", update=PER_BROKER
    )
    sasl_mechanism_inter_broker_protocol: str = string("GSSAPI", "SASL mechanism among brokers.", update=PER_BROKER)
    sasl_mechanism_controller_protocol: str = string(
        "GSSAPI", "SASL mechanism towards the KRaft controller.", importance=HIGH, in_use=False
    )
    sasl_server_max_receive_size: int = integer(
        524_288, "Longest SASL message that is read before a client has authenticated."
    )
    sasl_server_callback_handler_class: str | None = java_class(None, "Class that answers SASL callbacks in Kafka.")
    sasl_client_callback_handler_class: str | None = java_class(
        None, "Class of the broker's own SASL client in Kafka.", in_use=False
    )
    sasl_login_callback_handler_class: str | None = java_class(
        None, "Class of the SASL login callbacks in Kafka.", in_use=False
    )
    sasl_login_class: str | None = java_class(None, "Class of the SASL login in Kafka.", in_use=False)
    sasl_login_connect_timeout_ms: int | None = integer(
        None, "Connect timeout of an OAuth login.", importance=LOW, in_use=False
    )
    sasl_login_read_timeout_ms: int | None = integer(
        None, "Read timeout of an OAuth login.", importance=LOW, in_use=False
    )
    sasl_login_refresh_buffer_seconds: int = short(
        300, "Seconds of a login's life to keep in reserve when refreshing.", update=PER_BROKER, in_use=False
    )
    sasl_login_refresh_min_period_seconds: int = short(
        60, "Least seconds between two refreshes of a login.", update=PER_BROKER, in_use=False
    )
    sasl_login_refresh_window_factor: float = double(
        0.8, "Share of a login's life after which it is refreshed.", update=PER_BROKER, in_use=False
    )
    sasl_login_refresh_window_jitter: float = double(
        0.05, "Random share added to the refresh time.", update=PER_BROKER, in_use=False
    )
    sasl_login_retry_backoff_ms: int = long(
        100, "First pause before an OAuth login is tried again.", importance=LOW, in_use=False
    )
    sasl_login_retry_backoff_max_ms: int = long(
        10_000, "Longest pause before an OAuth login is tried again.", importance=LOW, in_use=False
    )
    sasl_kerberos_kinit_cmd: str = string("/usr/bin/kinit", "Path of kinit.", update=PER_BROKER, in_use=False)
    sasl_kerberos_min_time_before_relogin: int = long(
        60_000, "Least time between two Kerberos logins.", update=PER_BROKER, in_use=False
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = strings(
        ("DEFAULT",), "Rules from Kerberos principals to short names.", check=DISTINCT_VALUES, update=PER_BROKER
    )
    sasl_kerberos_service_name: str | None = string(
        None, "Kerberos service name of the brokers, where the login configuration has no principal.", update=PER_BROKER
    )
    sasl_kerberos_ticket_renew_jitter: float = double(
        0.05, "Random share added to the ticket renewal time.", update=PER_BROKER, in_use=False
    )
    sasl_kerberos_ticket_renew_window_factor: float = double(
        0.8, "Share of a ticket's life after which it is renewed.", update=PER_BROKER, in_use=False
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, "Seconds by which the clocks of broker and token issuer may differ.", importance=LOW
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = strings(
        (), "Accepted audiences: a token must name one of them.", importance=HIGH
    )
    sasl_oauthbearer_expected_issuer: str | None = string(None, "Issuer that a token must name.", importance=HIGH)
    sasl_oauthbearer_allow_unverified_audience: bool = boolean(
        False, "Accept tokens for whichever audience, where sasl.oauthbearer.expected.audience names none."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = boolean(
        False, "Accept tokens of whichever issuer, where sasl.oauthbearer.expected.issuer names none."
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        None, "Where the issuer's public keys are: an https or file URL."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000, "How often the issuer's keys are fetched again.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100, "First pause before the keys are fetched again after a failure.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10_000, "Longest pause before the keys are fetched again after a failure.", importance=LOW
    )
    sasl_oauthbearer_scope_claim_name: str = string("scope", "Claim of a token that holds its scopes.", importance=LOW)
    sasl_oauthbearer_sub_claim_name: str = string(
        "sub", "Claim of a token that holds the principal's name.", importance=LOW
    )
    sasl_oauthbearer_token_endpoint_url: str | None = string(
        None, "The file with the token that this broker shows to others: file:///path."
    )
    sasl_oauthbearer_scope: str | None = string(
        None, "Scope that the broker's own OAuth client asks for.", in_use=False
    )
    sasl_oauthbearer_jwt_retriever_class: str = java_class(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Class that gets a token in Kafka.",
        in_use=False,
    )
    sasl_oauthbearer_jwt_validator_class: str = java_class(
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Class that validates a token in Kafka.",
        in_use=False,
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = string(
        None, "Client id of the broker's own OAuth client.", in_use=False
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = password(
        "Client secret of the broker's own OAuth client.", in_use=False
    )
    sasl_oauthbearer_assertion_algorithm: str = string(
        "RS256",
        "Algorithm that the broker's own OAuth assertion is signed with.",
        check=one_of("ES256", "RS256", ignore_case=True),
        in_use=False,
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = string(
        None, "Audience of the broker's own OAuth assertion.", in_use=False
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = integer(
        300,
        "Seconds that the broker's own OAuth assertion is valid.",
        check=between(0, 86_400),
        importance=LOW,
        in_use=False,
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = string(
        None, "Issuer of the broker's own OAuth assertion.", in_use=False
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = boolean(
        False, "Give each OAuth assertion of the broker an id.", in_use=False
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = integer(
        60,
        "Seconds before now from which the broker's OAuth assertion is valid.",
        check=between(0, 3600),
        importance=LOW,
        in_use=False,
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = string(
        None, "Subject of the broker's own OAuth assertion.", in_use=False
    )
    sasl_oauthbearer_assertion_file: str | None = string(
        None, "File with a ready OAuth assertion of the broker.", in_use=False
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = string(
        None, "Key that the broker's OAuth assertion is signed with.", in_use=False
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = password(
        "Passphrase of the assertion's key.", in_use=False
    )
    sasl_oauthbearer_assertion_template_file: str | None = string(
        None, "Template of the broker's OAuth assertion.", in_use=False
    )
    ssl_client_auth: str = string(
        "none",
        "Whether clients must (required), may (requested) or do not (none) show a certificate.",
        check=one_of("required", "requested", "none"),
        update=PER_BROKER,
    )
    ssl_protocol: str = string("TLSv1.3", "Newest TLS protocol that is spoken.", update=PER_BROKER, in_use=False)
    ssl_enabled_protocols: tuple[str, ...] = strings(
        ("TLSv1.2", "TLSv1.3"), "TLS protocols that are spoken.", check=DISTINCT_VALUES, update=PER_BROKER
    )
    ssl_cipher_suites: tuple[str, ...] = strings(
        (),
        "Cipher suites that are offered, by OpenSSL's or Java's names; empty: the system's choice.",
        check=DISTINCT_VALUES,
        update=PER_BROKER,
    )
    ssl_keystore_type: str = string(
        "JKS", "Kind of ssl.keystore.location; Ottla sees whether it is PEM or PKCS12.", update=PER_BROKER, in_use=False
    )
    ssl_keystore_location: str | None = string(None, "File with the broker's certificate and key.", update=PER_BROKER)
    ssl_keystore_password: str | None = password("Password of the keystore.", update=PER_BROKER)
    ssl_keystore_key: str | None = password("The broker's private key itself, in PEM.", update=PER_BROKER)
    ssl_keystore_certificate_chain: str | None = password(
        "The broker's certificate chain itself, in PEM.", update=PER_BROKER
    )
    ssl_key_password: str | None = password("Password of the private key.", update=PER_BROKER)
    ssl_truststore_type: str = string(
        "JKS",
        "Kind of ssl.truststore.location; Ottla sees whether it is PEM or PKCS12.",
        update=PER_BROKER,
        in_use=False,
    )
    ssl_truststore_location: str | None = string(
        None, "File with the certificates of trusted authorities.", update=PER_BROKER
    )
    ssl_truststore_password: str | None = password("Password of the truststore.", update=PER_BROKER)
    ssl_truststore_certificates: str | None = password(
        "The trusted certificates themselves, in PEM.", update=PER_BROKER
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "With https, the name in another broker's certificate is checked; empty: it is not.",
        importance=LOW,
        update=PER_BROKER,
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT", "Rules from a certificate's distinguished name to a principal.", importance=LOW
    )
    ssl_provider: str | None = string(None, "Java's TLS provider.", update=PER_BROKER, in_use=False)
    ssl_secure_random_implementation: str | None = string(
        None, "Java's random number generator for TLS.", importance=LOW, update=PER_BROKER, in_use=False
    )
    ssl_keymanager_algorithm: str = string("SunX509", "Java's key manager.", update=PER_BROKER, in_use=False)
    ssl_trustmanager_algorithm: str = string("PKIX", "Java's trust manager.", update=PER_BROKER, in_use=False)
    ssl_engine_factory_class: str | None = java_class(
        None, "Class that makes TLS engines in Kafka.", importance=LOW, update=PER_BROKER, in_use=False
    )
    ssl_allow_dn_changes: bool = boolean(
        False, "Let a reloaded certificate have another distinguished name.", importance=LOW, in_use=False
    )
    ssl_allow_san_changes: bool = boolean(
        False, "Let a reloaded certificate have other alternative names.", importance=LOW, in_use=False
    )
