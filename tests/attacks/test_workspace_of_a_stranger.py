"""Attack: a user opens a stranger's checkout in the editor; the editor must run no code of it and read no endless file.

Its folders contain modules with the names of our modules and Python's, and links to devices. A FIFO replaces each file
that the language server looks for.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = '[["vhost", {"hostname": "h", "groups": {"g": {"users": "ann", "sources": "{user}.a"}}}]]'


def framed(*sent: dict[str, object]) -> bytes:
    contents = [json.dumps({"jsonrpc": "2.0", **each}).encode() for each in sent]
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(content), content) for content in contents)


def request(number: int, method: str, uri: str) -> dict[str, object]:
    params = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 3}}
    return {"id": number, "method": method, "params": params}


def test_the_language_server_runs_nothing_of_the_folder_and_is_not_held_up_by_it(tmp_path: Path) -> None:
    poison = f"open({str(tmp_path / 'poisoned')!r}, 'w').close()\n"
    for name in ("json", "policy", "lsprotocol", "schemas", "signal", "gc", "encodings"):
        (tmp_path / f"{name}.py").write_text(poison)
    for name in ("zero.json", "a.conf"):
        (tmp_path / name).symlink_to("/dev/zero")
    for name in ("pipe.json", "qdrouterd.conf", "qdpolicy.toml"):
        os.mkfifo(tmp_path / name)
    folder = {"uri": tmp_path.as_uri(), "name": "x"}
    initialize: dict[str, object] = {
        "processId": None,
        "rootUri": None,
        "capabilities": {},
        "workspaceFolders": [folder],
    }
    uri, device = (tmp_path / "p.json").as_uri(), (tmp_path / "zero.json").as_uri()
    item = {"uri": uri, "languageId": "json", "version": 1, "text": TEXT}
    asked: tuple[dict[str, object], ...] = (
        {"id": 1, "method": "initialize", "params": initialize},
        {"method": "textDocument/didOpen", "params": {"textDocument": item}},
        request(2, "textDocument/hover", device),
        request(3, "textDocument/completion", device),
        {"method": "textDocument/didSave", "params": {"textDocument": {"uri": device}}},
    )
    command = [sys.executable, "-P", "-m", "policy.cli.main", "lsp"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=tmp_path, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        # A server that is held up is to fail the test, not to hold it up.
        watch = threading.Timer(30, server.kill)
        watch.start()
        server.stdin.write(framed(*asked))
        server.stdin.flush()
        read = b""
        while not (b"PAL005" in read and b'"id":3' in read.replace(b" ", b"")):
            piece = os.read(server.stdout.fileno(), 65536)
            assert piece, read
            read += piece
        server.stdin.close()
        server.stdout.read()
        assert server.wait(20) == 0
        watch.cancel()
    assert not (tmp_path / "poisoned").exists()
