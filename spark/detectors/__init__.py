"""Detectors of attacks and faults: audit events -> findings. Each detector has one file; the tuple lists them all."""

from spark.detectors.address_probing import ADDRESS_PROBING
from spark.detectors.authenticator_outage import AUTHENTICATOR_OUTAGE
from spark.detectors.brute_force import BRUTE_FORCE
from spark.detectors.credential_stuffing import CREDENTIAL_STUFFING
from spark.detectors.denial_surge import DENIAL_SURGE
from spark.detectors.denied_then_allowed import DENIED_THEN_ALLOWED
from spark.detectors.dormant_user import DORMANT_USER
from spark.detectors.finding import Detector
from spark.detectors.first_seen import FIRST_SEEN
from spark.detectors.flapping import FLAPPING
from spark.detectors.limit_saturation import LIMIT_SATURATION
from spark.detectors.password_spraying import PASSWORD_SPRAYING
from spark.detectors.privilege_probing import PRIVILEGE_PROBING

DETECTORS: tuple[Detector, ...] = (
    BRUTE_FORCE,
    PASSWORD_SPRAYING,
    CREDENTIAL_STUFFING,
    DENIED_THEN_ALLOWED,
    PRIVILEGE_PROBING,
    ADDRESS_PROBING,
    FIRST_SEEN,
    DORMANT_USER,
    LIMIT_SATURATION,
    FLAPPING,
    AUTHENTICATOR_OUTAGE,
    DENIAL_SURGE,
)
