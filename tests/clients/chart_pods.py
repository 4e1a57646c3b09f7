"""Routers from the manifests of deploy/chart: each pod is a process with its host name, its address and its mounts.

All run in one network namespace of their own, with the chart's ports. What a kubelet would do is done here: folders
stand for the volumes, `..data` and links for the files of ConfigMaps, and /etc/hosts for the names of Services.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 60.0
# What the chart mounts, and where a pod of the tests has it.
MOUNTED = "/etc/qpid-dispatch"
_PROBE = """
import ssl, sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], context=ssl._create_unverified_context(), timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@dataclass(slots=True)
class Cluster:
    """A namespace of the network and of mounts, held by a process, and the pods in it."""

    folder: Path
    holder: "subprocess.Popen[str]"
    pods: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    containers: dict[str, tuple[list[str], dict[str, str]]] = field(default_factory=dict)  # command, environment

    @classmethod
    def make(cls, folder: Path, hosts: Mapping[str, str]) -> "Cluster":
        """hosts  name -> address"""
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{hosts[each]} {each}\n" for each in hosts))
        held = f"ip link set lo up && mount --bind {folder}/hosts /etc/hosts && echo ready && exec sleep infinity"
        holder = subprocess.Popen(
            ["unshare", "-rmnu", "sh", "-c", held], stdout=subprocess.PIPE, text=True, preexec_fn=_die_with_parent
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n", "namespaces cannot be made: see `unshare -rmnu`"
        return cls(folder, holder)

    def _inside(self, *command: str) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-U", "-m", "-n", "--preserve-credentials", *command]

    def start(self, name: str, address: str, template: Mapping[str, Any], objects: "Objects", run_dir: Path) -> None:
        """Start the pod of a StatefulSet or a Deployment, with the command of the image."""
        (container,) = template["spec"]["containers"]
        pod = self.folder / name
        for volume in template["spec"]["volumes"]:
            self._mount(volume, pod / "etc" / volume_folder(container, volume["name"]), objects)
        # An emptyDir is open to all users.
        for volume in (pod / "var", run_dir):
            volume.mkdir()
            volume.chmod(0o777)
        configuration = pod / "etc" / "router" / "qdrouterd.conf"
        text = configuration.read_text().replace(MOUNTED, f"{pod}/etc").replace("/var/lib/palisade", f"{pod}/var")
        configuration.write_text(text.replace("host: 0.0.0.0", f"host: {address}").replace("127.0.0.1", address))
        fields = {"metadata.name": name, "metadata.namespace": "demo"}
        variables = {
            each["name"]: each.get("value", "") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container["env"]
        }
        variables["QDROUTERD_CONF"] = str(configuration)
        variables["QDROUTERD_AUTO_CREATE_SASLDB_SOURCE"] = f"{pod}/etc/sasl-users"
        entry = (sys.executable, "-m", "router.entry.container", "--run-dir", str(run_dir))
        named = self._inside("unshare", "-u", "sh", "-c", 'hostname "$0" && exec "$@"', name, *entry)
        self.containers[name] = (named, {**os.environ, **variables})
        self.addresses[name] = address
        self.run_container(name)

    def run_container(self, name: str) -> None:
        """Also again: its volumes are as it left them."""
        command, environment = self.containers[name]
        with (self.folder / name / "log").open("wb") as log:
            self.pods[name] = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )

    def _mount(self, volume: Mapping[str, Any], target: Path, objects: "Objects") -> None:
        if "emptyDir" in volume:
            return
        kind, source = ("ConfigMap", volume["configMap"]) if "configMap" in volume else ("Secret", volume["secret"])
        content = objects.data(kind, source.get("name") or source["secretName"])
        chosen = {each["path"]: content[each["key"]] for each in source.get("items", ())} or content
        target.mkdir(parents=True)
        publish(target, chosen)

    def run(self, *command: str, stdin: str = "") -> tuple[int, str]:
        """Status and output of a tool that is run beside the pods."""
        ran = subprocess.run(
            self._inside(sys.executable, "-m", f"router.tools.{command[0]}", *command[1:]),
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def probe(self, name: str, path: str) -> int:
        """The HTTP status that a kubelet gets, who verifies no certificate and shows none; 0 without an answer."""
        ran = subprocess.run(
            self._inside(sys.executable, "-c", _PROBE, f"https://{self.addresses[name]}:8443{path}"),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return int(ran.stdout or 0)

    def background(self, *command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._inside(sys.executable, "-m", f"router.tools.{command[0]}", *command[1:]),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_die_with_parent,
        )

    def has_begun(self, name: str) -> bool:
        """Does the router serve, or has it ended?"""
        return "Operational" in self.log(name) or self.pods[name].poll() is not None

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text(errors="replace")

    def end(self) -> None:
        processes: list[subprocess.Popen[Any]] = [*self.pods.values(), self.holder]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert self.holder.stdout is not None
        self.holder.stdout.close()


@dataclass(frozen=True, slots=True)
class Objects:
    """The rendered manifests, and Secrets that an operator made."""

    manifests: list[dict[str, Any]]
    secrets: Mapping[str, Mapping[str, str]]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = (each for each in self.manifests if each["kind"] == kind and each["metadata"]["name"] == name)
        return found

    def data(self, kind: str, name: str) -> Mapping[str, str]:
        if kind == "Secret" and name in self.secrets:
            return self.secrets[name]
        found: Mapping[str, str] = self.one(kind, name)["data"]
        return found


def volume_folder(container: Mapping[str, Any], volume: str) -> str:
    (path,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == volume)
    return str(path).removeprefix(f"{MOUNTED}/").lstrip("/")


def publish(target: Path, content: Mapping[str, str]) -> None:
    """Lay files as the kubelet does: all change at once, by one link."""
    new = target / f"..{time.monotonic_ns()}"
    new.mkdir()
    for name, text in content.items():
        (new / name).write_text(text)
        (new / name).chmod(0o440)  # the chart's defaultMode
        if not (target / name).is_symlink():
            (target / name).symlink_to(f"..data/{name}")
    (target / "..new").symlink_to(new.name)
    (target / "..new").rename(target / "..data")
    for old in target.glob("..[0-9]*"):
        if old != new:
            shutil.rmtree(old)


def eventually(claim: Callable[[], Any]) -> Any:
    """The first true result of `claim`; its last one when patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := claim()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return value
