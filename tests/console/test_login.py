"""The console that asks who is there: logging in and out, what ends a session, and what each visitor may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.kproto.records import Record
from ottla.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)

Browse = Callable[..., Any]

LOGIN = {
    "ottla.http.security.protocol": "SASL_PLAINTEXT",
    "listener.name.http.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_admin="secret-a" user_alice="secret-b" user_bob="secret-c";'
    ),
    "connection.failed.authentication.delay.ms": "0",
    "ottla.http.listen": "127.0.0.1:0",
}
RIGHTS = LOGIN | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


async def log_in(browser: Any, user: str, password: str, back: str = "") -> Any:
    token = await browser.form_token("login")
    return await browser.post("login", {"token": token, "user": user, "password": password, "back": back})


def allow(user: str, operation: AclOperation, resource: AclResource, name: str) -> Acl:
    return Acl(resource, name, AclPattern.LITERAL, f"User:{user}", "*", operation, AclPermission.ALLOW)


async def test_nothing_is_shown_before_a_login(browse: Browse) -> None:
    async with browse(LOGIN) as browser:
        await browser.node.create_topic("orders")
        for path in ("", "topics", "topics/orders", "topics/orders/messages", "group?id=g", "settings", "nothing"):
            answer = await browser.http.get(f"/console/{path}")
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/console/login"), path
        assert (await browser.http.get("/console/topics", headers={"accept": "text/event-stream"})).status_code == 401
        token = await browser.form_token("login")
        assert (await browser.post("new-topic", {"token": token, "name": "mine"})).status_code == 401
        assert browser.node.broker.metadata.topic("mine") is None
        page = await browser.get("login")
        assert "orders" not in page.html
        assert (await browser.http.get("/console/static/console.css")).status_code == 200


async def test_a_user_logs_in_and_out(browse: Browse) -> None:
    async with browse(LOGIN) as browser:
        wrong = await log_in(browser, "alice", "secret-a")
        assert wrong.status_code == 403
        assert "secret-a" not in wrong.text
        unknown = await log_in(browser, "nobody", "secret-a")
        assert (unknown.status_code, "User or password is wrong" in unknown.text) == (403, True)
        before = browser.http.cookies["ottla_console_8080"]
        answer = await log_in(browser, "alice", "secret-b", back="/console/topics?q=x")
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/topics?q=x")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert browser.http.cookies["ottla_console_8080"] != before  # one that was planted before is of no use
        page = await browser.get("")
        assert page.status == 200
        assert "alice" in page.text
        token = await browser.form_token()
        assert (await browser.post("logout", {"token": "0" * 64})).status_code == 403
        kept = browser.http.cookies["ottla_console_8080"]
        assert (await browser.post("logout", {"token": token})).headers["location"] == "/console/login"
        browser.http.cookies.set("ottla_console_8080", kept)
        assert (await browser.http.get("/console/")).status_code == 303


@pytest.mark.parametrize("back", ["//evil.example.com", "https://evil.example.com/console/", "/console/\\x", ""])
async def test_a_login_leads_nowhere_else(browse: Browse, back: str) -> None:
    async with browse(LOGIN) as browser:
        assert (await log_in(browser, "alice", "secret-b", back)).headers["location"] == "/console/"


async def test_a_login_needs_its_form(browse: Browse) -> None:
    async with browse(LOGIN) as browser:
        good = {"user": "alice", "password": "secret-b"}
        assert (await browser.post("login", good)).status_code == 403
        token = await browser.form_token("login")
        evil = await browser.post("login", good | {"token": token}, origin="http://evil.example.com")
        assert evil.status_code == 403
        assert (await browser.http.get("/console/")).status_code == 303


async def test_who_guesses_has_to_wait(browse: Browse) -> None:
    async with browse(LOGIN) as browser:
        codes = [(await log_in(browser, "alice", f"{number}")).status_code for number in range(6)]
        assert codes == [403] * 5 + [429]
        locked = await log_in(browser, "alice", "secret-b")
        assert locked.status_code == 429
        assert int(locked.headers["retry-after"]) >= 1


@pytest.mark.frozen_clock
async def test_sessions_end(browse: Browse, mock_clock: Any) -> None:
    async with browse(LOGIN) as browser:
        for jumps in ([3601], [3500] * 13):
            assert (await log_in(browser, "alice", "secret-b")).status_code == 303
            codes = []
            for seconds in jumps:
                mock_clock.jump(seconds)
                codes.append((await browser.http.get("/console/settings")).status_code)
            assert codes == [200] * (len(jumps) - 1) + [303]


async def test_a_session_ends_with_its_password(browse: Browse) -> None:
    from tests.server.http.test_login import add_user

    async with browse(LOGIN) as browser:
        await add_user(browser.node.broker, "carol", "first")
        assert (await log_in(browser, "carol", "first")).status_code == 303
        assert (await browser.http.get("/console/")).status_code == 200
        await add_user(browser.node.broker, "carol", "second")
        assert (await browser.http.get("/console/")).status_code == 303
        assert (await log_in(browser, "carol", "second")).status_code == 303


async def test_pages_show_what_a_visitor_may_see(browse: Browse) -> None:
    async with browse(RIGHTS) as browser:
        topic_id = await browser.node.create_topic("orders")
        await browser.node.create_topic("secrets")
        await browser.produce(topic_id, 0, Record(value=b"tea for two"))
        controller = browser.node.broker.controller
        await controller.create_acls([allow("alice", AclOperation.DESCRIBE, AclResource.TOPIC, "orders")])
        await log_in(browser, "alice", "secret-b")

        page = await browser.get("topics")
        assert "orders" in page.text
        assert "secrets" not in page.html
        assert "New topic" not in page.text
        page = await browser.get("topics/orders")
        assert (page.status, "retention.ms" in page.text) == (200, False)
        assert not {"Messages", "Change", "Write"} & set(page.text.split("\n"))
        assert (await browser.get("topics/secrets")).status == (await browser.get("topics/none")).status == 404
        assert (await browser.get("topics/secrets/messages")).status == 404
        denied = await browser.get("topics/orders/messages")
        assert (denied.status, "User:alice may not read: topic orders." in denied.text) == (403, True)
        for path in ("topics/orders/messages/0/0", "topics/orders/messages/0/0/value", "topics/orders/live"):
            assert (await browser.http.get(f"/console/{path}")).status_code == 403, path
        assert (await browser.get("settings")).status == 403
        assert (await browser.get("access")).status in (403, 404)
        assert str(browser.node.broker.config.log_dirs[0]) not in (await browser.get("")).text

        await controller.create_acls([allow("alice", AclOperation.READ, AclResource.TOPIC, "orders")])
        assert "tea for two" in (await browser.get("topics/orders/messages")).text


async def test_forms_do_what_a_visitor_may_do(browse: Browse) -> None:
    async with browse(RIGHTS) as browser:
        topic_id = await browser.node.create_topic("orders")
        broker = browser.node.broker
        log = broker.replica_manager.get_partition(topic_id, 0).log
        describe = allow("alice", AclOperation.DESCRIBE, AclResource.TOPIC, "orders")
        await broker.controller.create_acls([describe])
        await log_in(browser, "alice", "secret-b")
        token = await browser.form_token()
        forms = {
            "partitions": {"count": "2"},
            "settings": {"settings": "retention.ms=7d"},
            "records": {"before": "now"},
            "delete": {"name": "orders"},
        }
        assert (await browser.post("topics/orders/produce", {"token": token, "value": "x"})).status_code == 403
        assert (await browser.post("new-topic", {"token": token, "name": "mine"})).status_code == 403
        for action, fields in forms.items():
            answer = await browser.post("topics/orders/manage", {"token": token, "action": action, **fields})
            assert answer.status_code == 403, action
        assert len(broker.metadata.topic("orders").partitions) == 1
        assert (log.log_end_offset, broker.metadata.topic("mine")) == (0, None)

        await broker.controller.create_acls(
            [
                allow("alice", AclOperation.WRITE, AclResource.TOPIC, "orders"),
                allow("alice", AclOperation.ALTER, AclResource.TOPIC, "orders"),
                allow("alice", AclOperation.CREATE, AclResource.TOPIC, "mine"),
            ]
        )
        assert (await browser.post("topics/orders/produce", {"token": token, "value": "x"})).status_code == 303
        assert (await browser.post("new-topic", {"token": token, "name": "mine"})).status_code == 303
        assert (await browser.post("new-topic", {"token": token, "name": "other"})).status_code == 403
        more = {"token": token, "action": "partitions", "count": "2"}
        assert (await browser.post("topics/orders/manage", more)).status_code == 200
        assert len(broker.metadata.topic("orders").partitions) == 2
        for action in ("settings", "records", "delete"):
            answer = await browser.post("topics/orders/manage", {"token": token, "action": action, **forms[action]})
            assert answer.status_code == 403, action

        await broker.controller.delete_acls([AclFilter()])
        assert (await browser.post("topics/orders/produce", {"token": token, "value": "x"})).status_code == 404


async def test_who_may_see_access_may_not_change_it(browse: Browse) -> None:
    async with browse(RIGHTS) as browser:
        broker = browser.node.broker
        await broker.controller.create_acls([allow("alice", AclOperation.DESCRIBE, AclResource.CLUSTER, CLUSTER_NAME)])
        await log_in(browser, "alice", "secret-b")
        page = await browser.get("access")
        assert page.status == 200
        assert "Set the password" not in page.text
        token, before = await browser.form_token(), (dict(broker.metadata.acls), dict(broker.metadata.quotas))
        for fields in (
            {"action": "add-acl", "entry": "alice all topic:*"},
            {"action": "delete-acl", "key": "x"},
            {"action": "add-user", "name": "bob", "password": "x"},
            {"action": "delete-user", "name": "alice"},
            {"action": "quota", "quota": "producer_byte_rate", "user": "alice", "value": "1"},
        ):
            assert (await browser.post("access", {"token": token, **fields})).status_code == 403, fields
        assert (dict(broker.metadata.acls), dict(broker.metadata.quotas)) == before
        await log_in(browser, "admin", "secret-a")
        token = await browser.form_token()
        answer = await browser.post("access", {"token": token, "action": "add-acl", "entry": "alice read topic:t"})
        assert answer.status_code == 303


async def test_an_administrator_may_do_everything(browse: Browse) -> None:
    async with browse(RIGHTS) as browser:
        await browser.node.create_topic("orders")
        await log_in(browser, "admin", "secret-a")
        token = await browser.form_token()
        assert "New topic" in (await browser.get("topics")).text
        assert (await browser.get("settings")).status == 200
        gone = {"token": token, "action": "delete", "name": "orders"}
        assert (await browser.post("topics/orders/manage", gone)).status_code == 303


async def test_groups_and_transactions_are_those_that_may_be_seen(browse: Browse) -> None:
    from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
    from tests.console.conftest import once_loaded

    async with browse(RIGHTS) as browser:
        broker = browser.node.broker
        topic_id = await browser.node.create_topic("orders")
        for group in ("billing", "audit"):
            offsets = {TopicPartition("orders", 0): OffsetToCommit(0, -1, "", topic_id=topic_id)}
            await broker.controller.ensure_topic("__consumer_offsets")
            await once_loaded(broker.group_coordinator.offsets.commit, group, offsets)
        await broker.controller.create_acls([allow("alice", AclOperation.DESCRIBE, AclResource.GROUP, "billing")])
        await log_in(browser, "alice", "secret-b")
        page = await browser.get("groups")
        assert "billing" in page.text
        assert "audit" not in page.html
        page = await browser.get("group", id="billing")
        assert (page.status, "orders" in page.html) == (200, False)
        assert (await browser.get("group", id="audit")).status == 404
        token = await browser.form_token()
        move = {"token": token, "action": "move", "to": "end"}
        may_read = allow("alice", AclOperation.READ, AclResource.GROUP, "billing")
        await broker.controller.create_acls([may_read])
        for topic in ("orders", "none"):
            answer = await browser.post("group/manage?id=billing", {**move, "topic": topic})
            assert (answer.status_code, f"may not read: topic {topic}." in answer.text) == (403, True)
        assert "orders" not in (await browser.post("group/manage?id=billing", move)).text
        await broker.controller.delete_acls([AclFilter(operation=AclOperation.READ)])
        assert (await browser.post("group/manage?id=billing", move)).status_code == 403
        delete = {"token": token, "action": "delete", "name": "billing"}
        assert (await browser.post("group/manage?id=billing", delete)).status_code == 403
        assert "billing" in {listing.group_id for listing in broker.group_coordinator.list_groups()}


async def test_members_and_transactions_name_topics_that_may_be_described(browse: Browse) -> None:
    from ottla.coordinator.transaction.state import Partition
    from tests.console.conftest import once_loaded
    from tests.coordinator.group.streams import test_on_a_node as streams

    async with browse(RIGHTS | streams.SETTINGS) as browser:
        broker = browser.node.broker
        for topic in ("in", "orders"):
            await browser.node.create_topic(topic, 2)
        for name in ("__consumer_offsets", "__transaction_state"):
            await broker.controller.ensure_topic(name)
        coordinator = broker.transaction_coordinator
        begun = await once_loaded(coordinator.init_producer_id, "ledger", 60_000, None)
        await coordinator.add_partitions("ledger", begun, [Partition("orders", 0), Partition("in", 1)], 1)
        anything = (AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER)
        names = {AclResource.CLUSTER: CLUSTER_NAME}
        await broker.controller.create_acls(
            [
                *(allow("ANONYMOUS", AclOperation.ALL, each, names.get(each, "*")) for each in anything),
                allow("alice", AclOperation.DESCRIBE, AclResource.GROUP, "g"),
                allow("alice", AclOperation.DESCRIBE, AclResource.TOPIC, "g-changelog"),
                allow("alice", AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, "ledger"),
            ]
        )
        await log_in(browser, "alice", "secret-b")
        await streams.joined(await streams.connected(browser.node))
        page = await browser.get("group", id="g")
        # Neither what the topology reads, nor what the member was given.
        assert ("g-changelog" in page.text, "topics/in" in page.html) == (True, False)
        assert "\nin" not in page.text

        await broker.controller.create_acls([allow("alice", AclOperation.DESCRIBE, AclResource.TOPIC, "in")])
        assert "topics/in" in (await browser.get("group", id="g")).html
        page = await browser.get("transactions")
        assert ("ledger" in page.text, "topics/in" in page.html, "orders" in page.html) == (True, True, False)


async def test_without_a_login_rights_are_those_of_nobody(browse: Browse) -> None:
    settings = RIGHTS | {"ottla.http.security.protocol": "PLAINTEXT"}
    async with browse(settings) as browser:
        await browser.node.create_topic("tulips")
        assert "tulips" not in (await browser.get("topics")).html
        await browser.node.broker.controller.create_acls(
            [allow("ANONYMOUS", AclOperation.READ, AclResource.TOPIC, "tulips")]
        )
        assert (await browser.get("topics/tulips/messages")).status == 200
        assert (await browser.http.get("/console/login")).headers["location"] == "/console/"
