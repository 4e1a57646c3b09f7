"""Auto-mesh by INFER: the pods of a StatefulSet are NAME-0, NAME-1 ..., and each connects to those of lower number.

One connection between two routers is enough. A pod that is added connects to all that are there, and one that is taken
away is the highest, to which nobody connects: no connector is ever left over. Pure.
"""

import re
from collections.abc import Mapping

DISCOVERY = "QDROUTERD_AUTO_MESH_DISCOVERY"
SERVICE = "QDROUTERD_AUTO_MESH_SERVICE_NAME"
PORT = "QDROUTERD_AUTO_MESH_PORT"
PROFILE = "QDROUTERD_AUTO_MESH_SSL_PROFILE"
APPLICATION = "APPLICATION_NAME"
NAMESPACE = "POD_NAMESPACE"
# Stops a host name that merely ends in a number, such as a date, from writing connectors without end.
MAX_ORDINAL = 255

_POD = re.compile(r"(?P<set>[a-z0-9]([-a-z0-9]*[a-z0-9])?)-(?P<ordinal>0|[1-9][0-9]*)")
_DNS_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9._-]+")

_CONNECTOR = """
connector {{
    name: auto-mesh-{pod}
    host: {pod}.{service}
    port: {port}
    role: inter-router
    sslProfile: {profile}
    saslMechanisms: EXTERNAL
    routerIds: {pod}
}}
"""


class MeshError(ValueError):
    """The text names the variable and what it has to be."""


def connectors(environment: Mapping[str, str], host_name: str) -> str:
    """The connectors of this pod, as sections of a configuration; empty where no auto-mesh is asked for.

    The router's id has to be the name of its pod: a connector to NAME-0 accepts that router alone.
    Errors  MeshError
    """
    mode = environment.get(DISCOVERY, "").strip().upper()
    if mode in ("", "NONE"):
        return ""
    if mode != "INFER":
        raise MeshError(f"{DISCOVERY} is INFER or NONE: discovery by the Kubernetes API (QUERY) is not built")
    pod = _POD.fullmatch(host_name)
    if pod is None or int(pod["ordinal"]) > MAX_ORDINAL:
        raise MeshError(
            f"{DISCOVERY}=INFER wants the host name of a pod of a StatefulSet, NAME-0 to NAME-{MAX_ORDINAL}, "
            f"and it is '{host_name}'"
        )
    profile, port = environment.get(PROFILE, "inter_router"), environment.get(PORT, "55671")
    if not _WORD.fullmatch(profile):
        raise MeshError(f"{PROFILE} is the name of an sslProfile")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise MeshError(f"{PORT} is a number from 1 to 65535")
    service = _service(environment)
    names = (f"{pod['set']}-{ordinal}" for ordinal in range(int(pod["ordinal"])))
    return "".join(_CONNECTOR.format(pod=name, service=service, port=port, profile=profile) for name in names)


def _service(environment: Mapping[str, str]) -> str:
    """The headless service through which the pods have names."""
    application = environment.get(APPLICATION)
    service = environment.get(SERVICE) or (f"{application}-headless" if application else "")
    if not service:
        raise MeshError(f"{DISCOVERY}=INFER wants {SERVICE}, the headless service of the StatefulSet")
    if "." not in service and (namespace := environment.get(NAMESPACE)):
        service = f"{service}.{namespace}.svc"
    if not _DNS_NAME.fullmatch(service):
        raise MeshError(f"{SERVICE} is not the name of a service")
    return service
