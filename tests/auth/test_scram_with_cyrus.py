"""Our SCRAM client against Cyrus SASL, the library of the C router, called as a server of its own."""

import ctypes
import ctypes.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from auth.client_scram import Derive, MechanismFault, Scram, derive
from auth.secrets import Secret

pytestmark = pytest.mark.interop

# The library keeps its configuration for the life of its process, so it has one of its own: each line on stdin is a
# message of the client in hex, the first with the mechanism's name before it; each on stdout the status and the answer.
SERVER = """
import ctypes, sys
folder, mechanism = sys.argv[1], sys.argv[2].encode()
sasl = ctypes.CDLL("libsasl2.so.2")
sasl.sasl_set_path(1, folder.encode())
assert sasl.sasl_server_init(None, b"palisade") == 0
connection = ctypes.c_void_p()
assert sasl.sasl_server_new(b"amqp", b"localhost", b"localhost", None, None, None, 0, ctypes.byref(connection)) == 0
out, size = ctypes.c_char_p(), ctypes.c_uint()
out = ctypes.POINTER(ctypes.c_char)()
step = 0
for line in sys.stdin:
    said = bytes.fromhex(line.strip())
    given = (said, len(said), ctypes.byref(out), ctypes.byref(size))
    if step == 0:
        status = sasl.sasl_server_start(connection, mechanism, *given)
    else:
        status = sasl.sasl_server_step(connection, *given)
    step += 1
    answer = out[: size.value] if out else b""
    print(status, answer.hex(), flush=True)
"""
OK, CONTINUE = 0, 1


@pytest.fixture
def cyrus(require_tool: Callable[[str, str], Path], tmp_path: Path) -> Iterator[Callable[..., tuple[str, str]]]:
    """`cyrus(mechanism, password)`: a whole exchange of alice's. Returns how it ended for the server and the client."""
    saslpasswd2 = require_tool("saslpasswd2", "sasl2-bin")
    if ctypes.util.find_library("sasl2") is None:
        pytest.skip("libsasl2 is missing: apt-get install libsasl2-2 libsasl2-modules")
    database = tmp_path / "sasldb"
    subprocess.run(
        [saslpasswd2, "-c", "-p", "-f", str(database), "-u", "localhost", "alice"], input=b"wonderland", check=True
    )
    (tmp_path / "palisade.conf").write_text(
        f"pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {database}\n"
    )
    started: list[subprocess.Popen[str]] = []

    def run(mechanism: str, password: str, binding: bytes | None = None) -> tuple[str, str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(tmp_path), mechanism],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        client = Scram(mechanism, "alice", Secret(password), binding=binding, offers_plus=False)
        said = client.initial_response()
        while True:
            process.stdin.write(said.hex() + "\n")
            process.stdin.flush()
            status, _, answer = process.stdout.readline().strip().partition(" ")
            data = bytes.fromhex(answer)
            if int(status) != CONTINUE:
                break
            made = client.answer(data)
            said = client.derived(derive(made)) if isinstance(made, Derive) else made
        try:
            client.confirm(data)
        except MechanismFault as fault:
            return status, str(fault)
        return status, "believed"

    yield run
    for each in started:
        each.communicate()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_cyrus_and_our_client_believe_each_other(cyrus: Callable[..., tuple[str, str]], mechanism: str) -> None:
    assert cyrus(mechanism, "wonderland") == (str(OK), "believed")
    assert cyrus(mechanism, "wonderland", b"x" * 32) == (str(OK), "believed")  # inside TLS, where it offers no -PLUS
    status, end = cyrus(mechanism, "wrong")
    assert int(status) < 0
    assert end != "believed"
