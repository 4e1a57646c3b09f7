"""Which client does what: the table that the tests are made from, and docs/compatibility.md shows.

`python tests/clients/features.py` writes the table into the page.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- table: tests/clients/features.py writes it -->\n", "<!-- end of table -->\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client library, as the page names it.

    version_in  file below tests/, and the pattern whose group is the version tested
    lacks       feature -> why the library cannot be asked for it
    reconnects  connects again by itself after a forced close
    gives_reasons  can reject with a condition and a description
    pulls       each receive grants a credit of its own, and drains it when nothing comes
    """

    title: str
    language: str
    version_in: tuple[str, str]
    lacks: Mapping[str, str]
    reconnects: bool
    gives_reasons: bool = True
    pulls: bool = False


FEATURES: Mapping[str, str] = {
    "login": "TLS, SASL PLAIN",
    "scram": "SASL SCRAM-SHA-256 and -512",
    "external": "SASL EXTERNAL: its certificate",
    "token": "SASL XOAUTH2: a token",
    "settled": "sender settles first (`settled`)",
    "unsettled": "receiver settles, `first`",
    "mixed": "`mixed`: each message as it says",
    "second": "receiver settles last, `second`",
    "large": "message of 20 MB",
    "drain": "drain",
    "release": "released reaches the sender",
    "reject": "rejected, with condition and description",
    "modify": "modified, with both flags",
    "reply": "request, reply to a dynamic address",
    "reconnect": "forced close, then reconnect",
    "denied_connection": "denied connection: condition, description",
    "denied_link": "denied link: condition, description",
}

NO_SECOND = "the library has no receiver mode `second`"
NO_SCRAM = "the library has no SCRAM"
CLIENTS: Mapping[str, Client] = {
    "rhea": Client(
        title="rhea",
        language="JavaScript",
        version_in=("interop/package-lock.json", r'"node_modules/rhea": \{\s*"version": "([^"]+)"'),
        lacks={"scram": NO_SCRAM},
        reconnects=True,
    ),
    "goamqp": Client(
        title="Azure go-amqp",
        language="Go",
        version_in=("clients/goamqp/go.mod", r"go-amqp v(\S+)"),
        lacks={"scram": NO_SCRAM},
        reconnects=False,
    ),
    "qpidjms": Client(
        title="Qpid JMS",
        language="Java",
        version_in=("clients/qpidjms/pom.xml", r"qpid-jms-client</artifactId>\s*<version>([^<]+)"),
        lacks={"mixed": "JMS settles by the connection's policy, not by message", "second": NO_SECOND},
        reconnects=True,
        gives_reasons=False,
        pulls=True,
    ),
    "protonj2": Client(
        title="protonj2",
        language="Java",
        version_in=("clients/protonj2/pom.xml", r"protonj2-client</artifactId>\s*<version>([^<]+)"),
        lacks={"mixed": "the library knows at-most-once and at-least-once only", "second": NO_SECOND},
        reconnects=True,
    ),
    "fe2o3": Client(
        title="fe2o3-amqp",
        language="Rust",
        version_in=("clients/fe2o3/Cargo.toml", r'fe2o3-amqp = "=([^"]+)"'),
        lacks={
            "scram": "the library wants SCRAM's last message with the outcome; Cyrus sends it as a challenge",
            "external": "the library has EXTERNAL over a TLS it makes itself only",
            "token": "the library has no mechanism for tokens",
        },
        reconnects=False,
    ),
}


def version(client: Client) -> str:
    name, pattern = client.version_in
    found = re.search(pattern, (HERE.parent / name).read_text())
    assert found is not None, f"{pattern} is not in tests/{name}"
    return found[1]


def table() -> str:
    """In Markdown, with a note below for each thing that a client lacks."""
    notes: list[str] = []

    def cell(client: Client, feature: str) -> str:
        if (why := client.lacks.get(feature)) is None:
            if feature == "reject" and not client.gives_reasons:
                return "yes, without them"
            return "yes" if feature != "reconnect" or client.reconnects else "yes, by hand"
        if why not in notes:
            notes.append(why)
        return f"no ({notes.index(why) + 1})"

    heads = [f"{client.title} {version(client)}" for client in CLIENTS.values()]
    rows = [
        f"| | {' | '.join(heads)} |",
        f"|---{'|---' * len(heads)}|",
        f"| language | {' | '.join(client.language for client in CLIENTS.values())} |",
    ]
    for feature, title in FEATURES.items():
        cells = [cell(client, feature) for client in CLIENTS.values()]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    told = [f"({number}) {why[0].upper()}{why[1:]}." for number, why in enumerate(notes, 1)]
    return "\n".join([*rows, "", "\n".join(told)]) + "\n"


def page_with_table(text: str) -> str:
    """The page with the table of today between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text("utf-8")), "utf-8")
