"""Sections and attributes of other versions and products, with their replacements here. Pure.

Covers names from before 1.0 of the router that we replace, of its releases with adaptors, and of skupper-router, which
has adaptors too.
"""

from collections.abc import Mapping
from typing import Final

_ADAPTOR: Final = "an adaptor of other versions: 1.20 has none, and neither has this router"

SECTIONS: Final[Mapping[str, str]] = {
    "container": "the section is router today, and containerName its id",
    "fixedAddress": "write an address section with prefix and distribution",
    "waypoint": "write an address section with waypoint: yes, and an autoLink for each direction",
    "linkRoutePattern": "write a linkRoute section for each direction",
    "linkRoutePrefix": "write a linkRoute section for each direction",
    "onDemandAddress": "write an autoLink section for each direction",
    "policyRuleset": "the section is vhost today",
    **dict.fromkeys(("tcpListener", "tcpConnector", "httpListener", "httpConnector"), _ADAPTOR),
}

# (section, attribute) -> the replacement.
ATTRIBUTES: Final[Mapping[tuple[str, str], str]] = {
    ("router", "routerId"): "the attribute is id today",
    ("router", "containerName"): "the attribute is id today",
    ("listener", "addr"): "the attribute is host today",
    ("connector", "addr"): "the attribute is host today",
    ("policy", "maximumConnections"): "the attribute is maxConnections today",
    ("policy", "policyFolder"): "the attribute is policyDir today",
    ("policy", "enableAccessRules"): "the attribute is enableVhostPolicy today",
    ("policy", "defaultApplication"): "the attribute is defaultVhost today",
    ("address", "phase"): "the attributes are ingressPhase and egressPhase today",
}
