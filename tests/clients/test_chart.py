"""deploy/chart, rendered by Helm: what Kubernetes would take, and routers that run from what was rendered."""

import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from chart_pods import MOUNTED, Cluster, Objects, eventually, publish
from programs import BuildError, built

from auth import qdcerts
from policy.cli import main as qdpolicy

pytestmark = pytest.mark.xdist_group("helm")

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "deploy" / "chart" / "palisade-router"
KUBERNETES = "1.34"
# Of custom resources; their schemas come with their operators.
CUSTOM = ("cert-manager.io/v1", "monitoring.coreos.com/v1", "route.openshift.io/v1")
EDGES: Mapping[str, Any] = {"edge": {"enabled": True}}
CERTIFICATES = {
    "certManager": {"enabled": True, "interRouterIssuer": {"name": "mesh-ca"}, "clientIssuer": {"name": "public"}}
}
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"edge": {"enabled": True, "autoscaling": {"enabled": True}}},
    CERTIFICATES,
    {"console": {"enabled": True, "host": "console.example.com", "className": "nginx"}},
    {"monitoring": {"serviceMonitor": True, "secret": "scraper", "labels": {"team": "a"}}},
    {"client": {"caSecret": "client-ca", "openshiftServingCertificate": True}, "users": {"secret": "people"}},
)

Helm = Callable[..., "subprocess.CompletedProcess[str]"]
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def helm(require_tool: Callable[[str, str], Path]) -> Helm:
    try:
        command = built("helm", require_tool)
    except BuildError as error:
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(str(error))
        pytest.skip(str(error))

    def run(verb: str, *arguments: str, values: Mapping[str, Any] | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command, verb, *arguments, "--kube-version", f"{KUBERNETES}.0", "-f", "-"],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def render(helm: Helm) -> Render:
    def run(values: Mapping[str, Any] | None = None, name: str = "mesh") -> list[dict[str, Any]]:
        ran = helm("template", name, str(CHART), "-n", "demo", values=values)
        assert ran.returncode == 0, ran.stderr
        return [each for each in yaml.safe_load_all(ran.stdout) if each]

    return run


def combined(chosen: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """The options have no key in common."""
    return {key: value for each in chosen for key, value in each.items()}


COMBINATIONS = [
    combined(tuple(itertools.compress(OPTIONS, chosen)))
    for chosen in itertools.product((False, True), repeat=len(OPTIONS))
]


def test_lint_has_nothing_to_complain_about(helm: Helm) -> None:
    ran = helm("lint", str(CHART), "--strict", values=combined(OPTIONS))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_all_options_in_all_combinations_are_what_kubernetes_takes(render: Render) -> None:
    """Against the strict schemas of its API; pods keep to the restricted profile."""
    for values in COMBINATIONS:
        for manifest in render(values):
            if manifest["apiVersion"] not in CUSTOM:
                kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
            if manifest["kind"] in ("StatefulSet", "Deployment"):
                check_restricted(manifest["spec"]["template"]["spec"])
            assert manifest["metadata"]["labels"]["application"] == "mesh"


def check_restricted(pod: Mapping[str, Any]) -> None:
    """Source: Pod Security Standards, Restricted; and more: nothing writes to the root file system."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all(len(each.keys() & {"configMap", "secret", "emptyDir"}) == 1 for each in pod["volumes"])
    for container in pod["containers"]:
        limits = container["securityContext"]
        assert limits["allowPrivilegeEscalation"] is False
        assert limits["readOnlyRootFilesystem"] is True
        assert limits["capabilities"] == {"drop": ["ALL"]}


def test_a_selector_finds_the_pods_of_its_component_only(render: Render) -> None:
    """Clients connect to edges where there are some, and a budget of one component counts no pod of the other."""
    objects = Objects(render(EDGES), {})
    pods = {
        kind: objects.one(kind, name)["spec"]["template"]["metadata"]["labels"]
        for kind, name in (("StatefulSet", "mesh"), ("Deployment", "mesh-edge"))
    }

    def found(selector: Mapping[str, str]) -> set[str]:
        return {kind for kind, labels in pods.items() if selector.items() <= labels.items()}

    for name, kinds in (
        ("mesh", {"Deployment"}),
        ("mesh-headless", {"StatefulSet"}),
        ("mesh-interior", {"StatefulSet"}),
    ):
        assert found(objects.one("Service", name)["spec"]["selector"]) == kinds
    for name, kinds in (("mesh-interior", {"StatefulSet"}), ("mesh-edge", {"Deployment"})):
        assert found(objects.one("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"]) == kinds


def test_the_lint_of_policies_has_nothing_to_complain_about(
    render: Render, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each finding that is meant has its reason beside it."""
    objects = Objects(render({**EDGES, "client": {"caSecret": "client-ca"}}), {})
    publish(tmp_path, objects.data("ConfigMap", "mesh-policy"))
    for name, text in objects.data("ConfigMap", "mesh-configuration").items():
        (tmp_path / name).write_text(text.replace(f"{MOUNTED}/policy", str(tmp_path)).replace("${HOSTNAME}", "mesh-0"))
        qdpolicy.main(["lint", str(tmp_path / name)])
        shown = capsys.readouterr()
        assert "PAL" not in shown.out + shown.err


@pytest.mark.parametrize(
    "values",
    [
        {"interior": {"replicas": 0}},
        {"interior": {"replica": 3}},
        {"console": {"enabled": True}},
        {"monitoring": {"serviceMonitor": True}},
        {"certManager": {"enabled": True}},
        {"interRouter": {"user": "a\n}"}},
        {"policy": {"files": {"chart.json": "[]"}}},
    ],
)
def test_values_that_make_no_sense_are_refused(helm: Helm, values: Mapping[str, Any]) -> None:
    ran = helm("template", "mesh", str(CHART), values=values)
    assert ran.returncode != 0
    assert "values don't meet the specifications of the schema" in ran.stderr


# Three interior pods and an edge one, as in a cluster.
ADDRESSES = {"mesh-0": "127.0.0.1", "mesh-1": "127.0.0.2", "mesh-2": "127.0.0.3", "mesh-edge-6f7b9d-x2x4c": "127.0.0.4"}
EDGE = "mesh-edge-6f7b9d-x2x4c"
SERVICES = {"mesh-interior.demo.svc": ADDRESSES["mesh-0"], "mesh.demo.svc": ADDRESSES[EDGE]}


def certificate(folder: Path, name: str, *hosts: str) -> dict[str, str]:
    """A Secret of the authority in the folder, by the command of docs/kubernetes.md."""
    words = ["-f", str(folder)]
    if not folder.exists():
        assert qdcerts.main([*words, "ca"]) == 0
    assert qdcerts.main([*words, "router", name, *(word for host in hosts for word in ("--host", host))]) == 0
    files = {"ca.crt": "ca.crt", "tls.crt": f"{name}.crt", "tls.key": f"{name}.key"}
    return {key: (folder / file).read_text() for key, file in files.items()}


@pytest.fixture(scope="module")
def cluster(
    render: Render, require_tool: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    for tool, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2")):
        require_tool(tool, package)
    folder = tmp_path_factory.mktemp("cluster")
    routers, clients = folder / "routers-ca", folder / "clients-ca"
    mesh = certificate(routers, "mesh.demo.svc.cluster.local", "*.mesh-headless.demo.svc", "mesh-interior.demo.svc")
    secrets = {
        "mesh-inter-router-certs": mesh,
        "mesh-edge-certs": certificate(routers, "mesh-edge", "mesh-edge.demo.svc"),
        "mesh-client-certs": certificate(clients, "server", "mesh.demo.svc", *ADDRESSES.values()),
        "mesh-users": {"admin": "correct horse"},
    }
    secrets["client-ca"] = {"ca.crt": secrets["mesh-client-certs"]["ca.crt"]}
    objects = Objects(render({**EDGES, "client": {"caSecret": "client-ca"}}), secrets)
    hosts = {f"{name}.mesh-headless.demo.svc": ADDRESSES[name] for name in ADDRESSES if name != EDGE} | SERVICES
    made = Cluster.make(folder, hosts)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        try:
            for name, address in ADDRESSES.items():
                owner = ("Deployment", "mesh-edge") if name == EDGE else ("StatefulSet", "mesh")
                template = objects.one(*owner)["spec"]["template"]
                made.start(name, address, template, objects, Path(memory) / name)
            for name in ADDRESSES:
                assert eventually(lambda name=name: made.has_begun(name)), made.log(name)  # type: ignore[misc]
                assert made.pods[name].poll() is None, made.log(name)
            yield made
        finally:
            made.end()


def local(name: str) -> tuple[str, str]:
    """The listener that `kubectl exec POD -- qdstat` uses."""
    return "-b", f"{ADDRESSES[name]}:5672"


def admin(cluster: Cluster, name: str) -> list[str]:
    password = cluster.folder / "password"
    password.write_text("correct horse")
    trust = ("--ssl-trustfile", f"{cluster.folder}/clients-ca/ca.crt")
    login = ("--sasl-username", "admin@mesh", "--sasl-password-file", str(password))
    return ["-b", f"amqps://{ADDRESSES[name]}:5671", *trust, *login]


@pytest.mark.parametrize("name", ["mesh-0", "mesh-2"])
def test_the_pods_form_a_mesh_over_mutual_tls(cluster: Cluster, name: str) -> None:
    others = {"mesh-0", "mesh-1", "mesh-2"} - {name}

    def between() -> list[dict[str, Any]]:
        """The connections with the other interior routers, once there is one with each."""
        shown = cluster.run("qdmanage", *local(name), "query", "--type", "connection")
        rows = json.loads(shown[1]) if shown[0] == 0 else []
        found = [each for each in rows if each["role"] == "inter-router"]
        return found if {each["container"] for each in found} == others else []

    found = eventually(between)
    assert found, "\n".join(map(cluster.log, ADDRESSES))
    assert {(each["isEncrypted"], each["sasl"]) for each in found} == {(True, "EXTERNAL")}
    users = {each.get("user") for each in found if each["dir"] == "in"}
    assert users <= {"mesh.demo.svc.cluster.local"}

    def routed() -> bool:
        shown = cluster.run("qdstat", *local(name), "-n")[1]
        return all(f"{each} " in shown for each in others)

    assert eventually(routed)


def test_the_connectors_of_auto_mesh_are_shown(cluster: Cluster) -> None:
    """As the cookbook looks for them; and nobody who may only look changes one."""
    rows = eventually(lambda: json.loads(cluster.run("qdmanage", *local("mesh-2"), "query", "--type", "connector")[1]))
    assert sorted(each["host"] for each in rows) == [f"mesh-{n}.mesh-headless.demo.svc" for n in (0, 1)]
    status, shown = cluster.run(
        "qdmanage", *local("mesh-2"), "delete", "--type", "connector", "--name", "auto-mesh-mesh-0"
    )
    assert (status, "Forbidden" in shown) == (1, True)


def test_a_probe_is_answered_and_metrics_want_a_password(cluster: Cluster, render: Render) -> None:
    """Also where clients may show certificates, which a kubelet does not have."""
    template = Objects(render(EDGES), {}).one("StatefulSet", "mesh")["spec"]["template"]
    path = template["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"]
    assert eventually(lambda: cluster.probe("mesh-0", path) == 200), cluster.log("mesh-0")
    assert cluster.probe("mesh-0", "/metrics") == 401


def test_a_message_goes_from_an_edge_to_an_interior_router(cluster: Cluster) -> None:
    edge = eventually(lambda: cluster.run("qdstat", *admin(cluster, EDGE), "-g")[0] == 0)
    assert edge, cluster.log(EDGE)
    receiver = cluster.background("qdreceive", *admin(cluster, "mesh-2"), "-a", "orders", "-c", "1", "-t", "50")
    sent = cluster.run("qdsend", *admin(cluster, EDGE), "-a", "orders", "-c", "1", "--body", "order", "-t", "50")
    assert sent[0] == 0, sent[1]
    assert "order" in receiver.communicate(timeout=60)[0]


def test_a_client_with_a_certificate_has_a_port_of_its_own(cluster: Cluster) -> None:
    """An authority at port 5671 shut out every client with a password. `server` is known, and in no group."""
    files = (f"{cluster.folder}/clients-ca/{name}" for name in ("ca.crt", "server.crt", "server.key"))
    words = zip(("--ssl-trustfile", "--ssl-certificate", "--ssl-key"), files, strict=True)
    bus = ("-b", f"amqps://{ADDRESSES['mesh-0']}:5673")
    status, _ = cluster.run("qdstat", *bus, *(word for pair in words for word in pair), "-g")
    assert status == 1
    assert "user 'server'" in cluster.log("mesh-0")


def test_a_container_that_is_started_again_joins_again(cluster: Cluster) -> None:
    """Its volumes are not new, and its neighbours and the edge have lost their connections."""
    cluster.pods["mesh-0"].terminate()
    assert cluster.pods["mesh-0"].wait(20) == 0
    cluster.run_container("mesh-0")

    def peers() -> set[str]:
        status, shown = cluster.run("qdmanage", *local("mesh-0"), "query", "--type", "connection")
        return {each["container"] for each in json.loads(shown)} if status == 0 else set()

    assert eventually(lambda: peers() >= {"mesh-1", "mesh-2", EDGE}), cluster.log("mesh-0")


def test_a_changed_policy_is_in_force_without_a_restart(cluster: Cluster, render: Render) -> None:
    """The last test of the cluster: afterwards the administrator may do nothing at mesh-1."""
    assert eventually(lambda: cluster.run("qdstat", *admin(cluster, "mesh-1"), "-g")[0] == 0), cluster.log("mesh-1")
    default = '[["vhost", {"hostname": "$default", "allowUnknownUser": false, "groups": {}}]]'
    changed = Objects(render(combined((EDGES, {"policy": {"files": {"default.json": default}}}))), {})
    publish(cluster.folder / "mesh-1" / "etc" / "policy", changed.data("ConfigMap", "mesh-policy"))
    assert eventually(lambda: cluster.run("qdstat", *admin(cluster, "mesh-1"), "-g")[0] != 0)
