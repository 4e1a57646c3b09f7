"""An old name is used.

Routers still understand it, with a warning in the log. `id` and, where there is no hostname, `name` are `hostname`
today, `maxConnectionsPerRemoteHost` is `maxConnectionsPerHost`, and the token `{user}` is `${user}`. So it is with
attributes of sections: `certDb` is `caCertFile`, `keyFile` is `privateKeyFile`.
"""

from collections.abc import Iterator

from policy.addressing.lists import DEPRECATED_USER_TOKEN, USER_TOKEN
from policy.groups import ADDRESS_KEYS
from policy.lint.findings import About, Family, Finding, Fix, Level, PolicyText
from policy.lint.section_names import old_attribute_names
from policy.vhosts import DEPRECATED_ATTRIBUTES

ID = "PAL005"
TITLE = "old name"
FAMILY = Family.HYGIENE


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.all_sections:
        for old, new in old_attribute_names(section.type).items():
            if old in section.attributes:
                about = About(item=old, instead=new, fix=Fix(old=old, new=new))
                yield section.finding(ID, Level.WARNING, f"'{old}' is the old name of '{new}'", old, about)
    for vhost in policy.vhosts:
        for old, new in DEPRECATED_ATTRIBUTES.items():
            if old in vhost.attributes:
                about = About(item=old, instead=new, fix=Fix(old=old, new=new))
                yield vhost.finding(ID, Level.WARNING, f"'{old}' is the old name of '{new}'", old, about=about)
        if "hostname" not in vhost.attributes and "id" not in vhost.attributes:
            text = "'name' stands for the missing 'hostname': write 'hostname'"
            about = About(item="name", instead="hostname", fix=Fix(old="name", new="hostname"))
            yield vhost.finding(ID, Level.WARNING, text, "name", about=about)
    for group in policy.groups:
        for key in ADDRESS_KEYS:
            for item in group.items(key):
                if DEPRECATED_USER_TOKEN in item.replace(USER_TOKEN, ""):
                    text = f"'{item}': write '{USER_TOKEN}' for '{DEPRECATED_USER_TOKEN}'"
                    new = item.replace(DEPRECATED_USER_TOKEN, USER_TOKEN)
                    fix = Fix(old=item, new=new) if USER_TOKEN not in item else None
                    yield group.finding(ID, Level.WARNING, text, key, About(item=item, instead=new, fix=fix))
