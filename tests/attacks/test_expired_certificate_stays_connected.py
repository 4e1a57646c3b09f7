"""Attack: a client logs in with a certificate, and stays connected after the certificate has expired."""

from pathlib import Path

import raw_peer
from harness import RunningRouter
from test_resumed_certificates import Authority, Client, authority, context_of_carol, router  # noqa: F401


def test_a_connection_ends_with_its_certificate(
    router: RunningRouter,  # noqa: F811
    authority: Authority,  # noqa: F811
    tmp_path: Path,
) -> None:
    first = Client(router, context_of_carol(router, authority, "1.3", uses_tickets=True, life_s=3))
    peer = raw_peer.RawPeer(first.socket, 0)
    peer.seconds_until_closed(10)
    assert b"The client certificate has expired" in peer.received
    event = router.wait_for_audit(reason="certificate_expired")
    assert (event["user"], event["mechanism"]) == ("carol", "EXTERNAL")
