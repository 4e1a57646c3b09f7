"""Ends open connections whose user was removed from the user file, or has another password now.

This happens with `onPolicyChange: enforce`; the file is watched as policyDir is. A file that cannot be used ends no
connection, and no user can log in with it. Source: docs/spec/policy-and-auth.md §8.7.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial

from auth.identity import Proof
from auth.verifiers.files import UserFile, UserFileError
from auth.verifiers.verifier import DEFAULT
from router.connection.accepted import Connection
from router.connection.stack import Stack
from router.effects import Emit, log
from router.io.aside import ANSWER_S, Aside
from router.io.folder_watch import FolderWatch, scan_file
from router.io.turns import turn


class Credentials:
    """The present user file, compared with the proofs that open connections have shown."""

    def __init__(self, path: str, connections: Mapping[int, Stack], finish: Callable[[], None], emit: Emit) -> None:
        """finish  sends messages that were made outside a pass of the loop. Errors: UserFileError"""
        self._path = path
        self._connections = connections
        self._finish = finish
        self._emit = emit
        read_at_ns = time.time_ns()
        self._users = UserFile.load(path)
        self._aside = Aside()
        self.watch = FolderWatch(partial(scan_file, path), self.read_again, read_at_ns=read_at_ns)

    def is_revoked(self, proof: Proof) -> bool:
        """Returns True if the proof that a user has shown is no longer valid."""
        return proof.verifier == DEFAULT and self._users.proof(proof.user) != proof.value

    async def read_again(self) -> bool:
        """Reads the changed file, and ends the connections of removed users.

        Returns False if the file cannot be used.
        """
        try:
            self._users = await self._aside.run(partial(UserFile.load, self._path))
        except TimeoutError:
            text = f"{self._path}: it could not be read within {ANSWER_S:g} s"
            log(self._emit, "POLICY", "error", f"File of users: {text}; open connections stay")
            return False
        except UserFileError as error:
            log(self._emit, "POLICY", "error", f"File of users: {error}; open connections stay")
            return False
        ended, has_time = 0, turn()
        for connection in list(self._connections.values()):
            ended += isinstance(connection, Connection) and connection.end_if_over()
            if not has_time():
                self._finish()
                await asyncio.sleep(0)
                has_time = turn()
        self._finish()
        log(self._emit, "POLICY", "info", f"File of users read anew: {ended} connections closed")
        return True
