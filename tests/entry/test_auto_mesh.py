"""Auto-mesh by the number of a pod: INFER of qdrouterd-entry."""

import pytest

from router.entry.mesh import MeshError, connectors

INFER = {"QDROUTERD_AUTO_MESH_DISCOVERY": "INFER", "QDROUTERD_AUTO_MESH_SERVICE_NAME": "mesh-headless"}


def hosts(text: str) -> list[str]:
    return [line.split()[-1] for line in text.splitlines() if line.strip().startswith("host:")]


def test_a_pod_connects_to_all_of_lower_number() -> None:
    """Two pods have one connection, whichever of them is started first."""
    assert hosts(connectors(INFER, "mesh-0")) == []
    assert hosts(connectors(INFER, "mesh-2")) == ["mesh-0.mesh-headless", "mesh-1.mesh-headless"]
    assert len(hosts(connectors(INFER, "my-mesh-10"))) == 10


def test_each_connector_takes_one_router_only() -> None:
    """Attack: another pod with a certificate of the mesh answers under the name of the first."""
    text = connectors(INFER, "mesh-1")
    assert "routerIds: mesh-0\n" in text
    assert "saslMechanisms: EXTERNAL" in text


def test_the_name_has_the_namespace_where_it_is_known() -> None:
    environment = {"QDROUTERD_AUTO_MESH_DISCOVERY": "infer", "APPLICATION_NAME": "mesh", "POD_NAMESPACE": "demo"}
    assert hosts(connectors(environment, "mesh-1")) == ["mesh-0.mesh-headless.demo.svc"]


@pytest.mark.parametrize(("mode", "host"), [("", "laptop"), ("NONE", "laptop")])
def test_without_auto_mesh_nothing_is_added(mode: str, host: str) -> None:
    assert connectors({"QDROUTERD_AUTO_MESH_DISCOVERY": mode}, host) == ""


@pytest.mark.parametrize(
    ("change", "host", "named"),
    [
        ({}, "mesh-6f7b9d-x2x4c", "a pod of a StatefulSet"),
        ({}, "backup-20261126", "a pod of a StatefulSet"),
        ({}, "mesh-01", "a pod of a StatefulSet"),
        ({"QDROUTERD_AUTO_MESH_DISCOVERY": "QUERY"}, "mesh-1", "QUERY"),
        ({"QDROUTERD_AUTO_MESH_SERVICE_NAME": ""}, "mesh-1", "QDROUTERD_AUTO_MESH_SERVICE_NAME"),
        ({"QDROUTERD_AUTO_MESH_SERVICE_NAME": "a\n}"}, "mesh-1", "QDROUTERD_AUTO_MESH_SERVICE_NAME"),
        ({"QDROUTERD_AUTO_MESH_SSL_PROFILE": "a b"}, "mesh-1", "QDROUTERD_AUTO_MESH_SSL_PROFILE"),
        ({"QDROUTERD_AUTO_MESH_PORT": "amqp"}, "mesh-1", "QDROUTERD_AUTO_MESH_PORT"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(change: dict[str, str], host: str, named: str) -> None:
    """The old script ended in a traceback: "ValueError: '10.254.4.107' is not in list"."""
    with pytest.raises(MeshError, match=named):
        connectors(INFER | change, host)
