"""Checks that fixes do not break a policy or change its meaning. Pure."""

from policy.analysis.conversion import opaque_addresses
from policy.files.loader import PolicyFileError
from policy.files.validation import load_sections
from policy.ruleset import PolicyError, compile_ruleset


def harm(file: str, before: str, after: str, *, is_unsafe: bool) -> str | None:
    """Returns why the fixes must not be made: they would break the policy, or safe ones would change its meaning."""
    digests = []
    for text in (before, after):
        try:
            vhosts = [entity for entity in load_sections(text, file) if entity.type == "vhost"]
        except PolicyFileError as error:
            return f"the fixes would break it: {error}"
        try:
            written = ((vhost.attributes, vhost.source) for vhost in vhosts)
            digests.append(compile_ruleset({}, written, resolve=opaque_addresses).digest)
        except PolicyError:
            digests.append("")  # refused by the router, for which there is another finding
    is_same = digests[0] in ("", digests[1])
    return None if is_unsafe or is_same else "the fixes would change what it permits"
