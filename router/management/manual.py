"""Writes the manual page qdrouterd.conf(5) from the schema: `python -m router.management.manual [FILE]`.

Writes deploy/man/qdrouterd.conf.5 by default; a test fails if the file does not match the schema.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from policy.configuration.kinds import APPLY_ORDER
from policy.configuration.schema import Attribute, EntityType, Schema, load_schema
from router.management.docs import default_text, is_set_in_file, kind_text, meaning_text

DEFAULT_FILE = Path("deploy/man/qdrouterd.conf.5")
# Only for tests of management.
_LEFT_OUT = ("dummy",)
# The type of the maps in a vhost's `groups`: it is not a section.
_GROUPS = "vhostUserGroupSettings"

_HEADER = """\
.\\" Written by `python -m router.management.manual` from schemas/management.json; edit that file, not this one.
.TH QDROUTERD.CONF 5 "" "Palisade Router" "File formats"
.SH NAME
qdrouterd.conf \\- configuration of the message router qdrouterd
.SH SYNOPSIS
.nf
.I /etc/qpid\\-dispatch/qdrouterd.conf
.fi
.SH DESCRIPTION
.B qdrouterd
reads one file at its start, the one that
.B \\-c
names. Without
.B \\-c
it is
.IR /etc/qpid\\-dispatch/qdrouterd.conf ,
and where that is not there, a default that is installed with the router and listens on 127.0.0.1 alone.
.PP
The file has sections, one for each entity:
.PP
.nf
.RS
listener {
    name: amqps
    host: 0.0.0.0
    port: amqps
    sslProfile: server
}
.RE
.fi
.PP
A value is the rest of its line; a value that is not there is the empty text. From a # on a line is a comment, but in
.BR pattern ", " bindingKey " and " hostname ,
whose value ends with the first blank. A backslash begins an escape as in JSON. Maps, such as
.B groups
of a vhost, are between { and }, each bracket at the end of its line; their members may be written as in JSON.
A file whose name ends in .json has an array of ["section", {attributes}] instead.
.PP
Booleans are yes or no. Passwords may be
.BI env: NAME
or
.BI file: PATH
instead of the text itself.
.PP
Whatever is wrong in the file stops the start, with file and line.
.B qdpolicy lint
finds more.
.SH SECTIONS
"""
_FOOTER = """\
.SH FILES
.TP
.I /etc/qpid\\-dispatch/qdrouterd.conf
The configuration.
.SH SEE ALSO
.BR "qdrouterd \\-\\-help" ,
.BR "qdpolicy lint \\-\\-help" ,
.B qdmanage get\\-schema
"""


def render(schema: Schema) -> str:
    """Returns the page in the man macros of roff."""
    names = [name for name in APPLY_ORDER if name not in _LEFT_OUT]
    names.insert(names.index("vhost") + 1, _GROUPS)
    return _HEADER + "".join(_section(schema, schema.types[name]) for name in names) + _FOOTER


def _section(schema: Schema, entity_type: EntityType) -> str:
    notes = [
        *(["There is at most one."] if entity_type.is_singleton and not entity_type.is_deprecated else []),
        *(["Deprecated, without effect."] if entity_type.is_deprecated else []),
    ]
    text = " ".join(filter(None, [entity_type.description, *notes]))
    common = schema.types["entity"].attributes
    own = [each for each in entity_type.attributes.values() if each.name not in common]
    shown = [each for each in own if entity_type.short_name == _GROUPS or is_set_in_file(entity_type, each)]
    heading = "vhost: each of its groups" if entity_type.short_name == _GROUPS else entity_type.short_name
    return f".SS {_roff(heading)}\n{_roff(text)}\n" + "".join(line for each in shown for line in _attribute(each))


def _attribute(attribute: Attribute) -> Iterator[str]:
    default = default_text(attribute)
    facts = [kind_text(attribute), *([default if attribute.is_required else f"default {default}"] if default else [])]
    yield f'.TP\n.BR {_roff(attribute.name)} " ({_roff(", ".join(facts))})"\n{_roff(meaning_text(attribute))}\n'


def _roff(text: str) -> str:
    """Returns plain text, with the characters escaped that roff would interpret. Removes the backquotes of Markdown."""
    escaped = re.sub(r"\s+", " ", text.replace("`", "")).replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(arguments: list[str]) -> int:
    target = Path(arguments[0]) if arguments else DEFAULT_FILE
    target.write_text(render(load_schema()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
