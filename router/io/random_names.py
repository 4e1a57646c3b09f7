"""Makes unguessable names for dynamic addresses. Source: docs/spec/routing.md §5.4."""

import secrets
import string

_ALPHABET = string.ascii_letters + string.digits + "+_"


def random_name() -> str:
    """Returns 15 characters of A-Z a-z 0-9 + _ from the system's generator: a dynamic address must not be guessable."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(15))
