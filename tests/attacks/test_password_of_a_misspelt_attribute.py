"""Attack: a password under a misspelt name gets into the log of a user who checks the file or starts the router.

`pasword: hunter2` in an sslProfile is an error, and `qdpolicy lint` showed the line with it: on a terminal, in SARIF,
in a pipeline's log that many may read. Now messages show no value of a secret, of an attribute with a similar name, or
of an unknown attribute. This holds for `qdpolicy`, for a router that does not start, and for `qdmanage`.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from daemon_process import LISTENER, Daemon, run_configuration

from policy.cli import main as qdpolicy
from policy.configuration.schema import load_schema
from router.management.client import ConnectionException, ManagementError
from router.management.config import ConfigError, load_config
from router.tools import qdmanage
from router.tools.connection_options import ConnectionOptions

SECRET = "hunter2mark"
NAMES = ["password", "pasword", "sasl-passwrd", "geheimnis"]
TYPES = ["sslProfile", "connector", "sslProfil"]
FORMS = {
    "a line": "{type} {{\n name: n\n {name}: {secret}\n}}\n",
    "quoted": '{type} {{\n name: n\n {name}: "{secret}"\n}}\n',
    "without a colon": "{type} {{\n name: n\n {name} {secret}\n}}\n",
    "with =": "{type} {{\n name: n\n {name} = {secret}\n}}\n",
    "on the next line": "{type} {{\n name: n\n {name}:\n {secret}\n}}\n",
    "with a bad escape": '{type} {{\n name: n\n {name}: "{secret}\\x"\n}}\n',
    "in a map": "{type} {{\n name: n\n {name}: {{\n a: {secret}\n }}\n}}\n",
    "never closed": "{type} {{\n name: n\n {name}: {secret}\n",
    "with an identity": "{type} {{\n name: n\n identity: i\n {name}: {secret}\n}}\n",
    "in one line": "{type} {{ name: n, {name}: {secret} }}\n",
}
JSON_FORMS = {
    "one line": '[["{type}", {{"name": "n", "{name}": "{secret}", "zzz": 1}}]]',
    "two lines": '[["{type}", {{"name": "n", "{name}":\n "{secret}"}}]]',
    "a list": '[["{type}", {{"name": "n", "{name}": ["{secret}"]}}]]',
    "broken": '[["{type}", {{"name": "n", "{name}": "{secret}" "x"}}]]',
    "twice": '[["{type}", {{"{name}": "{secret}", "{name}": "{secret}"}}]]',
    "in a vhost": '[["vhost", {{"hostname": "h", "{name}": "{secret}"}}]]',
    "in a group": '[["vhost", {{"hostname": "h", "groups": {{"g": {{"users": "*", "{name}": "{secret}"}}}}}}]]',
}


def files(folder: Path) -> Iterator[Path]:
    for forms, ending in ((FORMS, "conf"), (JSON_FORMS, "json")):
        for kind in TYPES:
            for name in NAMES:
                for number, (shape, form) in enumerate(forms.items()):
                    if shape == "without a colon" and name == "geheimnis":
                        continue  # a line that nobody understands and nothing makes suspicious
                    path = folder / f"{kind}-{name}-{number}.{ending}"
                    path.write_text(form.format(type=kind, name=name, secret=SECRET))
                    yield path


def leaks(folder: Path, spoken: Callable[[Path], str]) -> list[tuple[str, str]]:
    """(file, line) of what was said with the secret in it."""
    return [(path.name, line) for path in files(folder) for line in spoken(path).splitlines() if SECRET in line]


def said(main: Callable[[list[str]], int], *arguments: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        main(list(arguments))
    return out.getvalue()


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "junit"])
def test_lint_shows_no_value_that_may_be_a_secret(form: str, tmp_path: Path) -> None:
    assert leaks(tmp_path, lambda path: said(qdpolicy.main, "lint", "--format", form, str(path))) == []


VERBS = {
    "lint --diff": ["lint", "--diff", "--unsafe"],
    "explain": ["explain", "--host", "127.0.0.1"],
    "fmt --diff": ["fmt", "--diff"],
    "diff": ["diff", str(Path(__file__).parents[2] / "policies" / "quickstart" / "policy.json")],
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_other_verbs_of_qdpolicy_show_none(verb: str, tmp_path: Path) -> None:
    assert leaks(tmp_path, lambda path: said(qdpolicy.main, *VERBS[verb], str(path))) == []


def test_a_router_that_does_not_start_shows_none(tmp_path: Path) -> None:
    def refusal(path: Path) -> str:
        try:
            return "\n".join(log.text for log in load_config(str(path), load_schema()).early_logs)
        except ConfigError as error:
            return "\n".join((str(error), *(log.text for log in error.logs)))

    assert leaks(tmp_path, refusal) == []


@pytest.mark.parametrize("name", ["pasword", "geheimnis"])
def test_neither_does_its_log_nor_its_standard_error(name: str, tmp_path: Path) -> None:
    ran = run_configuration(tmp_path, f"sslProfile {{\n name: n\n identity: i\n {name}: {SECRET}\n}}\n" + LISTENER)
    assert ran.status == 1
    # The first fault that is told is the identity's.
    assert "'identity' attribut" in ran.err
    assert SECRET not in ran.err + ran.out
    ran = run_configuration(tmp_path, f"sslProfile {{\n name: n\n {name}: {SECRET}\n}}\n" + LISTENER)
    assert ran.status == 1
    assert name in ran.err
    assert SECRET not in ran.err + ran.out


def test_lint_still_names_the_attribute_and_its_line(tmp_path: Path) -> None:
    path = tmp_path / "router.conf"
    path.write_text(f"sslProfile {{\n name: n\n pasword: {SECRET}\n}}\n")
    shown = said(qdpolicy.main, "lint", str(path))
    assert "'pasword' is unknown: did you mean 'password'?" in shown
    assert "3 |  pasword: …" in shown


def refuse(options: ConnectionOptions, address: str) -> NoReturn:
    raise ConnectionException("no router")


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "--type", "connector", f"pasword={SECRET}"],
        ["create", "--type", "connector", "saslPassword", SECRET],
        ["read", f"pasword={SECRET}"],
        ["op", "--body", f'{{"pasword": "{SECRET}"'],
        ["op", "--properties", f'{{"pasword": "{SECRET}"'],
        ["op", "--properties", f'["{SECRET}"]'],
        ["query", "--sasl-pasword", "x", f"--sasl-passwrd={SECRET}", "--sasl-password", SECRET],
        ["query", "-b", f"amqp://u:{SECRET}@h:port"],
    ],
)
def test_qdmanage_does_not_repeat_what_may_be_one(arguments: list[str]) -> None:
    shown = said(lambda given: qdmanage.main(given, refuse), *arguments)
    assert shown
    assert SECRET not in shown


def test_neither_do_the_answers_and_the_log_of_a_router(daemon: Callable[..., Daemon]) -> None:
    router = daemon(LISTENER + "log {\n module: DEFAULT\n enable: trace+\n}\n")
    with router.client() as client:
        for name in NAMES:
            for given in ({}, {"identity": "i"}, {"type": "sslProfile"}, {"type": "sslProfile", "identity": "i"}):
                with pytest.raises(ManagementError) as caught:
                    client.call("CREATE", body={"name": "n", **given, name: SECRET, "zzz": SECRET}, expect=201)
                assert SECRET not in str(caught.value)
    router.log(r"AGENT \(error\)")
    assert [line for line in router.log() if SECRET in line and "zzz" not in line] == []
