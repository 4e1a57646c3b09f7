"""The installed version. Source: docs/spec/management.md §11."""

from importlib import metadata

try:
    VERSION = metadata.version("palisade-router")
except metadata.PackageNotFoundError:
    VERSION = "0+unknown"
