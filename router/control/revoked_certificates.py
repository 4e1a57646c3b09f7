"""Ends open connections when a new revocation list names the peer's certificate or that of an authority above it.

With `onPolicyChange: enforce` this happens as soon as the list is read. Source: docs/spec/policy-and-auth.md §6.8,
§8.7.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from auth.certificates import CertificateError, Chain
from auth.revocation import RevocationError, RevocationLists, read_lists
from auth.tls import peer_chain
from policy.files.regular import MAX_OTHER_BYTES, read_regular
from router.connection.accepted import Connection
from router.connection.outgoing import Outgoing
from router.connection.stack import Stack, Stage
from router.control.security import TlsFiles
from router.effects import Emit, log
from router.faults import fault_text
from router.io.aside import Aside
from router.io.turns import turn

# Maximum number of files in a directory of authorities. Stops a directory of links to one large file.
MAX_FILES: Final = 1000


class RevokedCertificates:
    def __init__(self, connections: Mapping[int, Stack], finish: Callable[[], None], emit: Emit) -> None:
        """finish  sends messages that were made outside a pass of the loop"""
        self._connections = connections
        self._finish = finish
        self._emit = emit
        self._aside = Aside()
        self._rounds: set[asyncio.Task[None]] = set()

    def on_adopted(self, files: TlsFiles, name: str) -> None:
        """Checks the connections of a listener or connector that now uses new files."""
        if files.profile.crl_file:
            task = asyncio.get_running_loop().create_task(self._end_revoked(files, name))
            self._rounds.add(task)
            task.add_done_callback(self._rounds.discard)

    def stop(self) -> None:
        for task in self._rounds:
            task.cancel()

    async def _end_revoked(self, files: TlsFiles, name: str) -> None:
        try:
            await self._end(files, name)
        except (RevocationError, OSError) as error:  # TimeoutError: the disk, or a list with millions of entries
            text = f"Revoked certificates at {name} could not be looked for, open connections stay: {error}"
            log(self._emit, "POLICY", "error", text)
        except Exception as error:
            log(self._emit, "ERROR", "error", f"Revoked certificates: {fault_text(error)}")

    async def _end(self, files: TlsFiles, name: str) -> None:
        shown: dict[Connection | Outgoing, Chain] = {}
        has_time = turn()
        for connection in self._connections_at(files, name):
            try:
                chain = peer_chain(connection.tunnel) if connection.tunnel is not None else None
            except CertificateError:  # OpenSSL can read it and we cannot: it may be revoked
                connection.end_for_revoked_certificate()
                continue
            if chain is not None:
                shown[connection] = chain
            elif connection.stage is Stage.TLS:
                connection.force_close()  # its handshake uses the lists that were in force when it began
            if not has_time():
                await asyncio.sleep(0)
                has_time = turn()
        if not shown:
            return
        revoked = await self._aside.run(partial(_revoked, files, set(shown.values())))
        ended, has_time = 0, turn()
        for connection, chain in shown.items():
            if chain in revoked and not connection.is_closed:
                connection.end_for_revoked_certificate()
                ended += 1
            if not has_time():
                self._finish()
                await asyncio.sleep(0)
                has_time = turn()
        self._finish()
        text = f"Revocation lists of sslProfile {files.profile.name} read anew: {ended} connections closed at {name}"
        log(self._emit, "POLICY", "info", text)

    def _connections_at(self, files: TlsFiles, name: str) -> Iterator[Connection | Outgoing]:
        for connection in list(self._connections.values()):
            if not isinstance(connection, Connection | Outgoing) or connection.is_closed:
                continue
            if connection.terms.name == name:
                tunnel = connection.tunnel
                if tunnel is not None and tunnel.chosen in (None, files.profile.name):
                    yield connection


def _revoked(files: TlsFiles, shown: set[Chain]) -> set[Chain]:
    """Returns the chains that a list revokes. Runs in a thread."""
    lists: RevocationLists = read_lists(files.profile.crl_file or "")
    authorities = _authorities(files.authorities_file)
    named = lists.revoked(
        {one for each in shown for one in each.shown}, authorities, {one for each in shown for one in each.signers}
    )
    revoking = lists.issuers_that_revoke(authorities)
    return {
        each
        for each in shown
        # The authorities of a resumed session are unknown. The session ends if a list may name one of them; then the
        # peer connects again.
        if not named.isdisjoint(each.shown) or (not each.is_whole and revoking - {each.shown[0].issuer})
    }


def _authorities(path: str | None) -> bytes:
    """Returns the authorities as PEM. b"" for those of the system: TLS has verified with them what the peers have
    shown.
    """
    if not path:
        return b""
    places = [str(each) for each in sorted(Path(path).iterdir())] if Path(path).is_dir() else [path]
    return b"\n".join(read_regular(place, MAX_OTHER_BYTES) for place in places[:MAX_FILES])
