"""One login of proton with Cyrus SASL, and a message to itself; test_daemon_proton_cyrus.py runs it.

Reads one JSON object from stdin: port, ca, mechanism, user, password, certificate, key; null for values that the
mechanism does not need. Prints one: mechanism and received, or error.
"""

import json
import sys

import proton
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

LIMIT_S = 20.0


def main() -> None:
    if not proton.SASL.extended():
        raise SystemExit(f"proton of {proton.__file__} has no Cyrus SASL")
    asked = json.load(sys.stdin)
    domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(asked["ca"])
    domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)
    if asked["certificate"] is not None:
        domain.set_credentials(asked["certificate"], asked["key"], None)
    try:
        connection = BlockingConnection(
            f"amqps://localhost:{asked['port']}",
            timeout=LIMIT_S,
            ssl_domain=domain,
            allowed_mechs=asked["mechanism"],
            user=asked["user"],
            password=asked["password"],
        )
    except proton.ConnectionException as error:
        print(json.dumps({"error": str(error)}))
        return
    receiver = connection.create_receiver("to-myself", credit=1)
    connection.create_sender("to-myself", options=AtMostOnce()).send(proton.Message(body="hello"))
    received = receiver.receive()
    assert connection.conn is not None
    assert connection.conn.transport is not None
    mechanism = connection.conn.transport.sasl().mech
    connection.close()
    print(json.dumps({"mechanism": mechanism, "received": received.body}))


if __name__ == "__main__":
    main()
