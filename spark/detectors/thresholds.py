"""The thresholds of the detectors. schemas/detect_thresholds.json lists them with their defaults."""

import json
from collections.abc import Mapping
from typing import Any

import jsonschema

import schemas

# Stops a wrong file from being read as a whole.
MAX_BYTES = 1024 * 1024


class ThresholdsError(Exception):
    """The file cannot be used. str() names the member and the right form."""


def defaults() -> dict[str, dict[str, Any]]:
    """Returns detector -> threshold -> value, including `enabled`."""
    properties = schemas.load("detect_thresholds")["properties"]
    return {name: {each: _default(spec) for each, spec in of["properties"].items()} for name, of in properties.items()}


def parse(text: str) -> dict[str, dict[str, Any]]:
    """Returns the defaults, changed by a JSON text. Raises ThresholdsError."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ThresholdsError(f"is not JSON: {error}") from None
    validator = jsonschema.Draft202012Validator(schemas.load("detect_thresholds"))
    for fault in validator.iter_errors(given):
        raise ThresholdsError(f"{'.'.join(map(str, fault.absolute_path)) or 'the file'}: {fault.message[:200]}")
    return {name: {**of, **given.get(name, {})} for name, of in defaults().items()}


def _default(spec: Mapping[str, Any]) -> Any:
    if "default" in spec:
        return spec["default"]
    return schemas.load("detect_thresholds")["$defs"][spec["$ref"].rpartition("/")[2]]["default"]
