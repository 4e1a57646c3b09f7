"""`qdmanage export`: the running configuration as a file with which the same router starts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from policy.configuration.kinds import APPLY_ORDER
from policy.configuration.schema import Attribute, EntityType, load_schema
from policy.files.conf_layout import conf_section
from policy.files.layout import Comments
from policy.printing import printable
from router.management.client import BadRequestStatus, ManagementClient, NotFoundStatus
from router.management.docs import is_set_in_file
from router.tools.command import utc_now

_NO_COMMENTS = Comments()
# Types only for tests of management, and types without effect: the router answers neither.
_LEFT_OUT = ("dummy", "console")


def exported(client: ManagementClient) -> str:
    """Returns the text of a `.conf`. Errors: those of the client, and NotWritableError."""
    schema = load_schema()
    lines = [f"# Written by `qdmanage export`, {utc_now()}. Secrets are not shown by the router, and so are not here."]
    for name in APPLY_ORDER:
        if name in _LEFT_OUT:
            continue
        entity_type = schema.types[name]
        for row in _rows(client, entity_type):
            lines += _section(entity_type, row)
    return "\n".join(lines) + "\n"


def _rows(client: ManagementClient, entity_type: EntityType) -> list[dict[str, Any]]:
    try:
        found = client.query(entity_type.long_name).entities()
    except (BadRequestStatus, NotFoundStatus):  # an extension, and the router is version 1.20
        return []
    return [
        row for row in found if row.get("origin") != "automatic" and row.get("type") in (None, entity_type.long_name)
    ]


def _section(entity_type: EntityType, row: Mapping[str, Any]) -> Iterator[str]:
    given = {}
    hidden = []
    for name, attribute in entity_type.attributes.items():
        value = row.get(name)
        if value is None or name in ("type", "identity") or not is_set_in_file(entity_type, attribute):
            continue
        if attribute.is_secret:
            hidden.append(name)
        elif not _is_default(entity_type, attribute, value, row):
            given[name] = value
    if entity_type.short_name == "log" and given.keys() <= {"module"}:
        return  # there is one for each module
    yield ""
    if given.pop("policyDir", None) is not None:
        yield f"# policyDir: {printable(str(row['policyDir']))}: its vhosts stand below instead"
    yield from (f"# '{name}' of the next section is secret: write it in" for name in hidden)
    yield from conf_section(entity_type.short_name, given, _NO_COMMENTS, is_compact=False)


def _is_default(entity_type: EntityType, attribute: Attribute, value: object, row: Mapping[str, Any]) -> bool:
    if attribute.name == "name":
        # Entities without a name in the file or in the request are numbered.
        is_made_up = re.fullmatch(rf"{re.escape(entity_type.short_name)}/\d+", str(value)) is not None
        return is_made_up or value == row.get("identity")
    return attribute.default is not None and value == attribute.default
