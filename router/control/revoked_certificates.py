"""Open connections whose client certificate a revocation list names since it was read anew.

With `onPolicyChange: enforce` they are ended as soon as the list is read. Source: docs/spec/policy-and-auth.md §6.8,
§8.7.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from auth.certificates import CertificateId
from auth.revocation import RevocationError, RevocationLists, read_lists
from policy.files.regular import MAX_OTHER_BYTES, read_regular
from router.connection.accepted import Connection
from router.connection.stack import Stack
from router.control.security import TlsFiles
from router.effects import Emit, log
from router.faults import fault_text
from router.io.aside import Aside
from router.io.turns import turn


class RevokedCertificates:
    def __init__(self, connections: Mapping[int, Stack], finish: Callable[[], None], emit: Emit) -> None:
        """finish  lets leave what was sent outside of a pass of the loop"""
        self._connections = connections
        self._finish = finish
        self._emit = emit
        self._aside = Aside()
        self._rounds: set[asyncio.Task[None]] = set()

    def on_adopted(self, files: TlsFiles, name: str) -> None:
        """A listener or connector uses what was read anew."""
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
        except (RevocationError, OSError) as error:  # TimeoutError: the disk, or a list of millions
            text = f"Revoked certificates at {name} could not be looked for, open connections stay: {error}"
            log(self._emit, "POLICY", "error", text)
        except Exception as error:
            log(self._emit, "ERROR", "error", f"Revoked certificates: {fault_text(error)}")

    async def _end(self, files: TlsFiles, name: str) -> None:
        shown: set[CertificateId] = set()
        for connection in self._connections_at(files, name):
            if connection.tenure.certificate is not None:
                shown.add(connection.tenure.certificate)
            elif connection.is_shaking_hands:
                connection.force_close()  # its handshake is judged by the lists there were when it began
        if not shown:
            return
        revoked = await self._aside.run(partial(_revoked, files, shown))
        ended, has_time = 0, turn()
        for connection in self._connections_at(files, name):
            if connection.tenure.certificate in revoked:
                connection.end_for_revoked_certificate()
                ended += 1
            if not has_time():
                self._finish()
                await asyncio.sleep(0)
                has_time = turn()
        self._finish()
        text = f"Revocation lists of sslProfile {files.profile.name} read anew: {ended} connections closed at {name}"
        log(self._emit, "POLICY", "info", text)

    def _connections_at(self, files: TlsFiles, name: str) -> Iterator[Connection]:
        for connection in list(self._connections.values()):
            if isinstance(connection, Connection) and connection.listener.name == name and not connection.is_closed:
                tunnel = connection.tunnel
                if tunnel is not None and tunnel.chosen in (None, files.profile.name):
                    yield connection


def _revoked(files: TlsFiles, shown: set[CertificateId]) -> set[CertificateId]:
    """In a thread."""
    lists: RevocationLists = read_lists(files.profile.crl_file or "")
    authorities = read_regular(files.authorities_file, MAX_OTHER_BYTES) if files.authorities_file else b""
    return lists.revoked(shown, authorities)
