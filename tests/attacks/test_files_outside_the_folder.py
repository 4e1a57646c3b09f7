"""Attack: a path that leads out of httpRootDir, by `..` in any coding, a link, or a NUL in the name.

Also a FIFO in the folder, which blocks any process that opens it.
"""

import os
from collections.abc import Iterator

import pytest
from daemon_process import Daemon
from web_attacker import lives, say, start_web, status

SECRET = b"the secret"
WAYS = [
    "/../secret",
    "/..%2fsecret",
    "/%2e%2e/secret",
    "/%2e%2e%2fsecret",
    "/%252e%252e/secret",
    "/%252e%252e%252fsecret",
    "/a/../../secret",
    "/a/..;/../secret",
    "/..\\secret",
    "/..%5csecret",
    "/%c0%ae%c0%ae/secret",
    "//secret",
    "/./../secret",
    "/secret%00.html",
    "/index.html%00",
    "/link",
    "/links/secret",
    "/inner/../link",
    "/.hidden",
    "/%2ehidden",
    "/fifo",
    "/folder",
]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, int]]:
    folder = tmp_path_factory.mktemp("web")
    root = folder / "root"
    (root / "folder").mkdir(parents=True)
    (folder / "secret").write_bytes(SECRET)
    (root / ".hidden").write_bytes(SECRET)
    (root / "index.html").write_text("the index")
    (root / "link").symlink_to(folder / "secret")
    (root / "links").symlink_to(folder)
    (root / "inside").symlink_to(root / "index.html")
    os.mkfifo(root / "fifo")
    router, port = start_web(folder, f"httpRootDir: {root}")
    yield router, port
    router.end()


def get(port: int, target: str) -> bytes:
    return say(port, f"GET {target} HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n".encode())


@pytest.mark.parametrize("target", WAYS)
def test_nothing_outside_is_read(web: tuple[Daemon, int], target: str) -> None:
    response = get(web[1], target)
    assert status(response) in (400, 404)
    assert SECRET not in response


def test_what_is_inside_is_served(web: tuple[Daemon, int]) -> None:
    assert get(web[1], "/").endswith(b"the index")
    assert get(web[1], "/inside").endswith(b"the index")
    assert lives(web[1])
