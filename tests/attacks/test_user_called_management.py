"""Attack: a user who may choose a name in a user database is called `$management`, or like other router addresses.

If a list has `${user}`, `${user}/#` or `${user}*`, this user has the management, or every address of the routers. With
`${user}.*`, a user called `temp` has the dynamic addresses of all clients, which are `temp.` and 15 characters.
"""

from typing import Any

import pytest
from memory_net import Net, Vhosts

from auth.identity import Identity
from policy.addressing.address import Address, resolve
from policy.addressing.lists import AddressRules, Permission, compile_literals, compile_patterns
from router.admission.connection_gate import ConnectionGate

NAMES = ["$management", "$", "_", "_$", "_lo", "_local", "_topo", "_edge", "_topo/0", "_edge/QDR", "_local/$management"]
NAMES += ["amqp:/$management", "/_topo", "//host/$management", "temp.AAAAAAAAAAAAAAA", "_local.", "temp", "temp."]
ROUTERS = ["$management", "_local/$management", "_topo/0/QDR/$management", "_topo/0/OTHER/x", "_edge/QDR/$management"]
ROUTERS += [
    "_local/temp.AAAAAAAAAAAAAAA",
    "_$temp.AAAAAAAAAAAAAAA",
    "amqp:/_topo/0/QDR/$management",
    "amqp:/$management",
    "temp.AAAAAAAAAAAAAAA",
]
LITERALS = ["${user}", "${user}*", "${user}/*", "${user}.*", "_${user}*", "amqp:/${user}", "amqp:/${user}*"]
BEHIND_ROUTERS = ["_local/${user}", "_topo/0/QDR/${user}", "_edge/QDR/${user}", "_topo/0/${user}", "_topo/${user}*"]
PATTERNS = ["${user}", "${user}/#", "${user}.#", "${user}/*/*/*", "_local/${user}", "#/${user}", "_topo/*/${user}"]
MORE = ["QDR/$management", "0/QDR/$management", "local/$management", "topo/0/QDR/$management", "management"]


@pytest.mark.parametrize("name", NAMES + MORE)
def test_no_name_makes_an_address_of_the_router(name: str) -> None:
    lists: list[AddressRules] = [compile_literals([item]) for item in LITERALS + BEHIND_ROUTERS]
    lists += [compile_patterns([item]) for item in PATTERNS]
    for text in ROUTERS:
        address = resolve(text, router_id="QDR")
        assert isinstance(address, Address)
        for rules in lists:
            verdict = Permission(rules, compile_literals(()), name).judge(address)
            assert verdict.item is None, (rules.items, text)


def house() -> Net:
    group: dict[str, Any] = {"remoteHosts": "*", "sources": "${user}*", "targets": "${user}*"}
    return Net(vhosts=Vhosts({"$default": {"allowUnknownUser": True, "groups": {"$default": group}}}))


@pytest.mark.parametrize("name", NAMES)
def test_such_a_user_is_refused_and_audited(name: str) -> None:
    net = house()
    net.gate.accept(connection_id=1, remote_host="10.0.0.1", connection_name="c", listener="l")
    gate = ConnectionGate(
        net.gate, connection_id=1, connection_name="c", remote_host="10.0.0.1", listener="l", is_governed=True
    )
    identity = Identity(user=name, mechanism="PLAIN", is_authenticated=True)
    refusal = gate.admit(identity, hostname="h", policy_vhost=None, is_encrypted=True, now=1.85e9)
    assert refusal is not None
    (event,) = net.audits
    assert (event["stage"], event["reason"], event["user"]) == ("open", "reserved_user_name", name)
    (line,) = (text for text in net.log_texts("POLICY") if "DENY" in text)
    assert "User name is reserved for addresses of the router" in line


@pytest.mark.parametrize(
    "name", ["anna", "a_b", "_anna", "x$", "tempo", "temp.x", "local", "_locally", "a/b", "anna@x.org"]
)
def test_others_have_their_own(name: str) -> None:
    rules = compile_literals(["${user}.*"])
    address = resolve(f"{name}.inbox", router_id="QDR")
    assert isinstance(address, Address)
    assert Permission(rules, compile_literals(()), name).judge(address).item == "${user}.*"
