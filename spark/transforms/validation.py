"""Lines of audit files -> events, each judged by schemas/audit_event.json; failed lines are kept with the reasons.

Native column expressions only. from_json alone is too kind: it turns the number 5 into the string "5", ignores members
it does not know and whatever follows the first object on a line. So the JSON type of every member is read from the
line's variant, and the expressions that judge it are built from the schema.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import schemas
from spark.schemas import audit_event, kinds_of

# A line past this is not parsed. Stops a file that an attacker put into the folder from taking a parser's memory; the
# longest event the router can write is under 100 kB (tests/audit).
MAX_LINE_BYTES = 256 * 1024
# Characters the quarantine keeps of a line, and of a member name in a reason.
MAX_QUARANTINED_CHARS = 4096
_MAX_SHOWN_CHARS = 100

SHADOW_DECISIONS = ("shadow_deny", "shadow_allow", "shadow_error")

TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX"

_CORRUPT = "_corrupt"
_FROM_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_VARIANT_TYPES: Mapping[str, str] = {"string": "STRING", "integer": "BIGINT", "boolean": "BOOLEAN", "null": "VOID"}

# Spark's parsers stop after the first value, so `{...}{...}` would pass as its first half. With the strings emptied,
# one object with members that may be objects looks like this and nothing else does. Possessive: linear, no stack.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ONE_OBJECT = r"\A\s*+\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}\s*+\z"


def parsed(lines: DataFrame) -> DataFrame:
    """Every line judged.

    lines    file: string, line: string (bytes of any kind, without the line feed).
    Returns  file; line (null where the event is valid); event (struct of spark.schemas.audit_event, null where it is
             not); faults (array of string, empty where it is).
    """
    text = F.regexp_replace("line", r"\r\z", "")
    is_fit_to_parse = (F.octet_length("line") <= MAX_LINE_BYTES) & F.is_valid_utf8("line")
    raw = lines.select("file", "line", F.when(is_fit_to_parse, text).alias("json"))
    typed = audit_event().add(_CORRUPT, "string")
    opened = raw.select(
        "file",
        "line",
        "json",
        F.from_json("json", typed, _FROM_JSON).alias("event"),
        F.try_parse_json("json").alias("variant"),
    )
    is_object = (
        F.col("variant").isNotNull()
        & F.schema_of_variant("variant").startswith("OBJECT<")
        & F.regexp_replace("json", _STRING, '""').rlike(_ONE_OBJECT)
    )
    members = F.array_compact(F.array(*_faults(schemas.load("audit_event"), "", "")))
    judged = opened.withColumn("members", members).withColumn(
        "faults",
        F.when(F.octet_length("line") > MAX_LINE_BYTES, _only(f"longer than {MAX_LINE_BYTES} bytes"))
        .when(~F.is_valid_utf8("line"), _only("not UTF-8"))
        .when(~F.coalesce(is_object, F.lit(False)), _only("not one whole JSON object"))
        .when((F.size("members") == 0) & F.col(f"event.{_CORRUPT}").isNotNull(), _only("not an audit event"))
        .otherwise(F.col("members")),
    )
    is_valid = F.size("faults") == 0
    return judged.select(
        "file",
        F.when(~is_valid, F.col("line")).alias("line"),
        F.when(is_valid, F.col("event").dropFields(_CORRUPT)).alias("event"),
        "faults",
    )


def events(judged: DataFrame) -> DataFrame:
    """The valid events of `parsed`, one column per member; `time` becomes a timestamp."""
    flat = judged.where(F.size("faults") == 0).select("event.*")
    return flat.withColumn("time", F.to_timestamp("time", TIME_FORMAT))


def quarantined(judged: DataFrame) -> DataFrame:
    """The other lines of `parsed`.

    Returns  file, reason (all faults, "; " between), line (its beginning, valid UTF-8), line_bytes (its whole length).
    """
    return judged.where(F.size("faults") > 0).select(
        "file",
        F.concat_ws("; ", "faults").alias("reason"),
        F.substring(F.make_valid_utf8("line"), 1, MAX_QUARANTINED_CHARS).alias("line"),
        F.octet_length("line").alias("line_bytes"),
    )


def _only(text: str) -> Column:
    return F.array(F.lit(text))


def _faults(spec: Mapping[str, Any], path: str, name: str) -> Iterator[Column]:
    """One expression per rule of an object's schema: null where it is kept, else a text.

    path  of the object in the line, "" for the line itself, else e.g. ".rule"; name is the same for a reader.
    """
    json = F.to_json(F.variant_get("variant", f"${path}", "variant")) if path else F.col("json")
    is_here = _kind(path).startswith("OBJECT<") if path else F.lit(True)
    strange = F.array_except(F.json_object_keys(json), F.array(*[F.lit(known) for known in spec["properties"]]))
    yield F.when(
        is_here & (F.size(strange) > 0),
        F.concat(F.lit(f"{name}no such member: "), F.substring(F.array_join(strange, ", "), 1, _MAX_SHOWN_CHARS)),
    )
    for member, inner in spec["properties"].items():
        inner_path, inner_name = f"{path}.{member}", f"{name}{member}"
        if member in spec["required"]:
            yield F.when(is_here & _kind(inner_path).isNull(), F.lit(f"{inner_name}: missing"))
        yield from _member_faults(inner, inner_path, inner_name)
    if not path:
        yield from _cross_faults()


def _member_faults(spec: Mapping[str, Any], path: str, name: str) -> Iterator[Column]:
    kind, value = _kind(path), F.col(f"event{path}")
    kinds = kinds_of(spec)
    has_type = kind.isin([_VARIANT_TYPES[one] for one in kinds if one != "object"])
    if "object" in kinds:
        has_type |= kind.startswith("OBJECT<")
    found = F.lower(F.regexp_extract(kind, r"\A\w+", 0))
    yield F.when(~has_type, F.concat(F.lit(f"{name}: must be {' or '.join(kinds)}, is "), found))

    def broken(rule: Column, text: str) -> Column:
        """Null values and wrong types are judged above; `rule` is null for them."""
        return F.when(has_type & ~rule, F.lit(f"{name}: {text}"))

    if "enum" in spec:
        yield broken(value.isin([one for one in spec["enum"] if one is not None]), "not one of the values it may have")
    if "const" in spec:
        yield broken(value == spec["const"], f"must be {spec['const']}")
    if "pattern" in spec:
        core = spec["pattern"].removeprefix("^").removesuffix("$")
        yield broken(value.rlike(rf"\A(?:{core})\z"), "not of the form it must have")
    if "maxLength" in spec:
        yield broken(F.char_length(value) <= spec["maxLength"], f"longer than {spec['maxLength']} characters")
    if "minimum" in spec:
        yield broken(value.between(spec["minimum"], spec["maximum"]), f"less than {spec['minimum']}, or too large")
    if "object" in kinds:
        yield from _faults(spec, path, f"{name}.")


def _cross_faults() -> Iterator[Column]:
    """The rules the schema has in words or with if/then/else."""
    is_moment = F.try_to_timestamp("event.time", F.lit(TIME_FORMAT)).isNotNull()
    yield F.when(F.col("event.time").isNotNull() & ~is_moment, F.lit("time: no such moment"))
    is_lost_event = F.coalesce(F.col("event.reason") == "events_lost", F.lit(False))
    has_count = _kind(".lost").isNotNull()
    yield F.when(is_lost_event & ~has_count, F.lit("lost: missing"))
    yield F.when(~is_lost_event & has_count, F.lit("lost: only for reason events_lost"))
    is_deletion = F.coalesce(F.col("event.reason") == "file_deleted", F.lit(False))
    has_file = _kind(".deleted").isNotNull()
    yield F.when(is_deletion & ~has_file, F.lit("deleted: missing"))
    yield F.when(~is_deletion & has_file, F.lit("deleted: only for reason file_deleted"))
    is_sum = _kind(".folded").isNotNull()
    yield F.when(is_sum & _kind(".attempts").isNull(), F.lit("folded: only with attempts"))
    for member in ("start", "sequence"):
        is_missing = (F.col("event.schema_version") >= 2) & _kind(f".{member}").isNull()
        yield F.when(is_missing, F.lit(f"{member}: missing"))
    is_shadow = F.coalesce(F.col("event.decision").isin(*SHADOW_DECISIONS), F.lit(False))
    has_shadow = _kind(".shadow").isNotNull()
    yield F.when(is_shadow & ~has_shadow, F.lit("shadow: missing"))
    yield F.when(~is_shadow & has_shadow, F.lit("shadow: only for shadow decisions"))
    is_management = F.coalesce(F.col("event.stage") == "management", F.lit(False))
    yield F.when(~is_management & _kind(".management").isNotNull(), F.lit("management: only at stage management"))


def _kind(path: str) -> Column:
    """The JSON type of a member: STRING, BIGINT, OBJECT<...>, VOID for null; null where there is no such member."""
    return F.schema_of_variant(F.variant_get("variant", f"${path}", "variant"))
