"""Configured passwords resolved against this process's environment and files (blocking, at start-up only)."""

import os

from auth.secrets import ResolvedPassword, resolve_password
from policy.files.regular import read_start


def resolve_configured(configured: str, *, is_literal_prefix: bool) -> ResolvedPassword:
    """As `auth.secrets.resolve_password`, with the real environment and the real files. Errors: PasswordError."""
    return resolve_password(
        configured,
        is_literal_prefix=is_literal_prefix,
        environment=os.environ.get,
        read_start=read_start,
    )
