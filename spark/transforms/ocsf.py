"""Audit events as OCSF 1.3: one JSON object each, for a SIEM that speaks it. DataFrame -> DataFrame.

docs/audit.md has the mapping. What OCSF has no member for is under `unmapped`, by our names.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

VERSION: Final = "1.3.0"
AUTHENTICATION, AUTHORIZE_SESSION, NETWORK_ACTIVITY, API_ACTIVITY = 3002, 3003, 4001, 6003
_CLASSES: Final = {
    "sasl": AUTHENTICATION,
    "open": AUTHENTICATION,
    "begin": AUTHORIZE_SESSION,
    "attach": AUTHORIZE_SESSION,
    "transfer": AUTHORIZE_SESSION,
    "management": API_ACTIVITY,
    "policy": API_ACTIVITY,
}
# The first activity of each class: Logon, Assign Privileges, Open; of API Activity none fits all changes, so Other.
_OPEN, _REFUSE, _OTHER = 1, 5, 99
_SUCCESS, _FAILURE = 1, 2
_LOW, _INFORMATIONAL = 2, 1
_UNMAPPED: Final = (
    *("start", "sequence", "stage", "decision", "reason", "rule", "requested_vhost", "vhost", "group", "direction"),
    *("address", "link_name", "usage", "limit", "ruleset_digest", "redecision", "condition", "attempts"),
)


def ocsf(events: DataFrame) -> DataFrame:
    """event_id, value (string): the JSON text. Without a candidate policy's decisions and the log's own events."""
    found = events.where(F.col("decision").isin("allow", "deny") & (F.col("stage") != "audit"))
    class_uid = F.lit(NETWORK_ACTIVITY)
    for stage, uid in _CLASSES.items():
        class_uid = F.when(F.col("stage") == stage, F.lit(uid)).otherwise(class_uid)
    is_allowed = F.col("decision") == "allow"
    activity = (
        F.when(class_uid == NETWORK_ACTIVITY, F.when(is_allowed, F.lit(_OPEN)).otherwise(F.lit(_REFUSE)))
        .when(class_uid == API_ACTIVITY, F.lit(_OTHER))
        .otherwise(F.lit(_OPEN))
    )
    whole = F.struct(
        class_uid.alias("class_uid"),
        (class_uid / 1000).cast("int").alias("category_uid"),
        activity.alias("activity_id"),
        (class_uid * 100 + activity).cast("bigint").alias("type_uid"),
        F.when(is_allowed, F.lit(_INFORMATIONAL)).otherwise(F.lit(_LOW)).alias("severity_id"),
        F.when(is_allowed, F.lit(_SUCCESS)).otherwise(F.lit(_FAILURE)).alias("status_id"),
        F.col("reason").alias("status_code"),
        F.col("detail").alias("status_detail"),
        F.unix_millis("time").alias("time"),
        F.coalesce(F.col("attempts"), F.lit(1)).cast("bigint").alias("count"),
        F.struct(
            F.lit(VERSION).alias("version"),
            F.col("event_id").alias("uid"),
            F.col("router").alias("log_provider"),
            F.struct(F.lit("Palisade Router").alias("name"), F.lit("Palisade").alias("vendor_name")).alias("product"),
        ).alias("metadata"),
        F.when(F.col("user").isNotNull(), F.struct(F.col("user").alias("name"))).alias("user"),
        F.col("mechanism").alias("auth_protocol"),
        F.when(
            F.col("remote_host").isNotNull(),
            F.struct(F.col("remote_host").alias("ip"), _port("connection_name").alias("port")),
        ).alias("src_endpoint"),
        F.when(
            F.col("listener").isNotNull(),
            F.struct(F.col("router").alias("name"), _port("listener").alias("port")),
        ).alias("dst_endpoint"),
        F.struct(*_UNMAPPED).alias("unmapped"),
    )
    return found.select("event_id", F.to_json(whole).alias("value"))


def _port(name: str) -> Column:
    return F.regexp_extract(name, r":(\d{1,5})\z", 1).try_cast("int")
