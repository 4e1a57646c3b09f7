"""rhea, a client from npm with TLS and SASL of its own, against a router that enforces a policy."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import USERS, RunningRouter

HERE = Path(__file__).parent
TIMEOUT_S = 40
COUNT = 1000
INSTALL = "rhea is not installed: npm ci --prefix tests/interop (`make test` does it)"
# The router's layers, not those of its AMQP engine, do TLS and SASL: tried on a bare engine as well.
pytestmark = pytest.mark.smoke

Rhea = Callable[..., dict[str, Any]]


@pytest.fixture
def rhea(require_tool: Callable[[str, str], Path], router: RunningRouter) -> Rhea:
    """`rhea("alice", send={...}, receive={...})`: the result of rhea_client.js; see there for the members.

    alice, bob, mallory log in with their passwords over TLS; carol, dave and stranger with certificates; None in the
    clear as anonymous.
    """
    node = require_tool("node", "nodejs")
    if not (HERE / "node_modules" / "rhea").is_dir():
        pytest.fail(INSTALL)

    def run(
        user: str | None, *, password: str | None = None, hostname: str = "localhost", **task: Any
    ) -> dict[str, Any]:
        certificates = router.certificates
        task["hostname"] = hostname
        if user is None:
            task["port"] = router.ports["clear"]
        elif user in USERS:
            secret = USERS[user] if password is None else password
            task |= {"port": router.ports["password"], "tls": {"ca": certificates.ca}, "user": user, "password": secret}
        else:
            certificate, key = certificates.pair(user)
            shown = {"ca": certificates.ca, "cert": certificate, "key": key}
            task |= {"port": router.ports["certificate"], "tls": shown, "is_external": True}
        # Not through the arguments, which every user of the machine can read.
        result = subprocess.run(
            [node, HERE / "rhea_client.js"],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        found: dict[str, Any] = json.loads(result.stdout)
        assert found["ended"] != "limit", found
        return found

    return run


def errors(result: dict[str, Any]) -> list[str]:
    return [f"{error['where']}: {error['condition']}: {error['description']}" for error in result["errors"]]


# Sent and received


@pytest.mark.parametrize(("user", "mechanism"), [("alice", "PLAIN"), ("carol", "EXTERNAL")])
def test_rhea_sends_and_receives_over_tls(user: str, mechanism: str, rhea: Rhea, router: RunningRouter) -> None:
    """policy 48, 56."""
    since = router.mark()
    result = rhea(user, send={"address": "orders.rhea", "count": 10}, receive={"address": "orders.rhea"})
    assert (result["ids"], result["outcomes"], result["errors"]) == (list(range(10)), {"accepted": 10}, [])
    router.wait_for_log(rf"Connection Opened: .* encrypted=TLSv1\.3 auth={mechanism} user={user} ", since=since)


def test_rhea_sends_and_receives_in_the_clear(rhea: Rhea) -> None:
    """policy 54."""
    result = rhea(None, send={"address": "guests.rhea", "count": 10}, receive={"address": "guests.rhea"})
    assert (result["outcomes"], result["errors"]) == ({"accepted": 10}, [])


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [("accept", "accepted"), ("reject", "rejected"), ("release", "released"), ("modify", "modified")],
)
def test_every_outcome_reaches_rhea(outcome: str, expected: str, rhea: Rhea) -> None:
    receive = {"address": "orders.outcomes", "outcome": outcome}
    result = rhea("alice", send={"address": "orders.outcomes", "count": COUNT}, receive=receive)
    assert result["outcomes"] == {expected: COUNT}
    assert result["ids"] == list(range(COUNT))


def test_large_messages_of_rhea_arrive_whole(rhea: Rhea) -> None:
    """routing 93: 5 MB, many frames, through TLS."""
    send = {"address": "orders.large", "count": 3, "size": 5_000_000}
    result = rhea("alice", send=send, receive={"address": "orders.large"})
    assert (result["outcomes"], result["received"]) == ({"accepted": 3}, [5_000_000] * 3)


def test_rhea_gets_a_dynamic_address_and_sends_to_it_without_a_target(rhea: Rhea) -> None:
    """policy 32."""
    result = rhea("alice", send={"to": ["dynamic", "dynamic"]}, receive={})
    assert result["dynamic"].startswith("amqp:/_topo/0/interop/temp.")
    assert (result["outcomes"], result["errors"]) == ({"accepted": 2}, [])


def test_an_anonymous_senders_messages_are_judged_one_by_one_for_rhea(rhea: Rhea, router: RunningRouter) -> None:
    """policy 37."""
    addresses = ["orders.one", "rhea.secret", "orders.one"]
    result = rhea("alice", send={"to": addresses}, receive={"address": "orders.one"})
    assert result["outcomes"] == {"accepted": 2, "rejected": 1}
    assert result["refusals"] == {"rhea.secret": "amqp:unauthorized-access: policy violation on target"}
    assert result["ids"] == [0, 2]
    event = router.wait_for_audit(stage="transfer", address="rhea.secret")
    assert (event["user"], event["reason"]) == ("alice", "message_target_not_allowed")


# Denied


def test_rhea_is_refused_with_a_wrong_password(rhea: Rhea, router: RunningRouter) -> None:
    result = rhea("alice", password="not alice's password")
    assert errors(result)
    assert "uthenticat" in errors(result)[0]
    assert router.wait_for_audit(stage="sasl", reason="sasl_failed")["mechanism"] == "PLAIN"
    assert not router.has_logged("not alice's password")


def test_rhea_is_refused_with_a_strangers_certificate(rhea: Rhea, router: RunningRouter) -> None:
    """policy 48."""
    assert errors(rhea("stranger"))
    router.wait_for_audit(stage="tls", reason="tls_handshake_failed")


@pytest.mark.parametrize("user", ["mallory", "dave"])
def test_rhea_is_told_in_open_and_close_that_its_user_is_in_no_group(
    user: str, rhea: Rhea, router: RunningRouter
) -> None:
    """policy 21: a user with a password, and one with a certificate."""
    refused = "connection: amqp:resource-limit-exceeded: connection disallowed by local policy"
    assert errors(rhea(user)) == [refused]
    assert router.wait_for_audit(stage="open", user=user)["reason"] == "unknown_user"


def test_rhea_is_told_in_open_and_close_of_an_unknown_vhost(rhea: Rhea, router: RunningRouter) -> None:
    """policy 18."""
    result = rhea("alice", hostname="elsewhere.example")
    assert errors(result) == ["connection: amqp:resource-limit-exceeded: connection disallowed by local policy"]
    assert router.wait_for_audit(stage="open", requested_vhost="elsewhere.example")["reason"] == "no_vhost"


@pytest.mark.parametrize(
    ("task", "where", "reason"),
    [
        ({"send": {"address": "secret"}}, "sender", "target_not_allowed"),
        ({"receive": {"address": "secret"}}, "receiver", "source_not_allowed"),
        ({"receive": {}}, "receiver", "dynamic_source"),
        ({"send": {"to": ["orders.one"]}}, "sender", "anonymous_sender"),
    ],
    ids=["target", "source", "dynamic source", "anonymous sender"],
)
def test_rhea_is_refused_a_link(
    task: dict[str, Any], where: str, reason: str, rhea: Rhea, router: RunningRouter
) -> None:
    """policy 29, 32: by attach and detach; the connection is closed by rhea, not by the router."""
    result = rhea("bob", **task)
    assert errors(result) == [f"{where}: amqp:unauthorized-access: link disallowed by local policy"]
    assert result["ended"] == "closed"
    assert router.wait_for_audit(stage="attach", user="bob", reason=reason)["decision"] == "deny"
