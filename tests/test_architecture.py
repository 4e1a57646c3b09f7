"""The table of docs/architecture.md, read from the source with `ast`: who may import whom, and what pure means.

One finding per wrong import, with file and line. Imports inside functions and under TYPE_CHECKING count as well.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = ("auth", "policies", "policy", "router", "schemas", "spark")
# Modules of the router we replace, installed at the top level.
COMPAT = ROOT / "router" / "compat"
COMPAT_TOP_LEVEL = ("qpid_dispatch", "qpid_dispatch_internal", "qpid_dispatch_site")

# Unit -> units of ours it may import. A module belongs to the unit with the longest matching name, and an entry also
# admits the modules below it. Everybody may import itself; ROUTER_VOCABULARY is open to all of router.
ROUTER_VOCABULARY = ("router.effects", "router.values", "router.faults", "policy.addressing")
ADMISSION_PARTS = ("router.bans", "router.breakoffs", "router.refusals", "router.shadow")
GATE_PARTS = ("router.admission", *ADMISSION_PARTS)
CONNECTION_PARTS = (
    *("router.amqp", "router.core", "router.gate", "router.inspection", "router.listener", "router.replies"),
)
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "schemas": (),
    "policies": (),
    "policy": ("schemas", "policy.addressing"),
    "policy.addressing": (),
    "auth": ("schemas",),
    "router": (),
    "router.values": (),
    "router.faults": (),
    "router.effects": ("router.values",),
    "router.core": ROUTER_VOCABULARY,
    "router.linkstate": ROUTER_VOCABULARY,
    "router.amqp": ROUTER_VOCABULARY,
    "router.shadow": ("policy", "router.refusals", *ROUTER_VOCABULARY),
    "router.repeats": (),
    "router.bans": ("policy", "router.repeats", *ROUTER_VOCABULARY),
    "router.breakoffs": ("router.repeats", *ROUTER_VOCABULARY),
    "router.refusals": ("policy",),
    "router.admission": ("policy", "auth.identity", *ADMISSION_PARTS, *ROUTER_VOCABULARY),
    "router.gate": ("policy", *GATE_PARTS, *ROUTER_VOCABULARY),
    "router.listener": ("auth", "router.amqp.message_text", *ROUTER_VOCABULARY),
    "router.inspection": ("router.amqp", "router.core", "router.gate", *ROUTER_VOCABULARY),
    "router.replies": ("policy.replies", "router.amqp", "router.core", "router.gate", *ROUTER_VOCABULARY),
    "router.peer": ("auth.identity", *CONNECTION_PARTS, *ROUTER_VOCABULARY),
    "router.stack": ("auth", "router.peer", *CONNECTION_PARTS, *ROUTER_VOCABULARY),
    "router.connection": ("auth", "router.peer", "router.stack", *CONNECTION_PARTS, *ROUTER_VOCABULARY),
    "router.outgoing": ("auth", "router.peer", "router.stack", *CONNECTION_PARTS, *ROUTER_VOCABULARY),
    "router.audit_event": ("schemas", *ROUTER_VOCABULARY),
    "router.audit_log": ("schemas", "router.audit_event", *ROUTER_VOCABULARY),
    "router.management": ("schemas", "policy", *ROUTER_VOCABULARY),
    "router.management.client": ("schemas", "auth", "router.amqp", "router.management", *ROUTER_VOCABULARY),
    "router.tools": ("schemas", "auth", "router.amqp", "router.management", *ROUTER_VOCABULARY),
    "qpid_dispatch": ("policy.conf_text", "router.management", "router.tools", "router.values"),
    "qpid_dispatch_internal": ("qpid_dispatch", "router.management", "router.tools", "schemas"),
    "qpid_dispatch_site": (),
    "router.io": ("schemas", "policies", "policy", "auth", "router"),
    "spark": ("policy", "schemas"),
}

# Third-party package -> the modules that may import it.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "jsonschema": ("policy", "router.audit_log", "spark"),
    "referencing": ("policy",),
    "pysasl": ("auth",),
    "scramp": ("auth",),
    "cryptography": ("auth",),
    "ldap3": ("auth.verifiers.ldap",),
    "proton": ("router.amqp.engine.library",),
    "cproton": ("router.amqp.engine.library",),
    "cproton_ffi": ("router.amqp.engine.library",),
    "cffi": ("router.amqp.engine.steps_build", "router.amqp.guard.frames_build", "router.amqp.layout.walk_build"),
    "uvloop": ("router.io",),
    "rich": ("policy.cli", "router.tools", "spark"),
    "pyspark": ("spark",),
}
# Where the import name is not the distribution's.
DISTRIBUTIONS = {"proton": "python-qpid-proton", "cproton": "python-qpid-proton", "cproton_ffi": "python-qpid-proton"}

# Values in, effects out: no clock, no chance, no world.
PURE = (
    *("policy", "auth.sasl_frames", "auth.negotiation"),
    *("router.core", "router.linkstate", "router.gate", *GATE_PARTS, "router.repeats", "router.audit_event"),
)
NOT_PURE = ("policy.cli",)
WORLD = {"asyncio", "logging", "os", "pathlib", "random", "secrets", "signal", "socket", "ssl", "subprocess", "urllib"}
IMPURE_IMPORTS = frozenset(WORLD | {"threading", "time", "proton", "cproton", "cproton_ffi"})


@dataclass(frozen=True, slots=True)
class Import:
    importer: str  # dotted module name
    imported: str  # dotted name; a module where one of that name exists
    where: str  # file:line


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file of every module of ours."""
    found = {}
    roots = [(ROOT / top, ROOT) for top in TOP_LEVEL] + [(COMPAT / top, COMPAT) for top in COMPAT_TOP_LEVEL]
    for folder, root in roots:
        for path in sorted(folder.rglob("*.py")):
            if root is ROOT and path.is_relative_to(COMPAT):
                continue
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for name, path in modules().items() for found in imports_of(name, path))


def imports_of(name: str, path: Path) -> Iterator[Import]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (Import(name, alias.name, where) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - (node.level - 1)]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(name, full if full in modules() else base, where)


def is_within(module: str, unit: str) -> bool:
    return module == unit or module.startswith(f"{unit}.")


def unit_of(module: str) -> str:
    return max((unit for unit in MAY_IMPORT if is_within(module, unit)), key=len)


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in (*TOP_LEVEL, *COMPAT_TOP_LEVEL)


def is_pure(module: str) -> bool:
    return any(is_within(module, unit) for unit in PURE) and not any(is_within(module, unit) for unit in NOT_PURE)


def breaks_table(found: Import) -> bool:
    if not is_ours(found.imported) or (importer := unit_of(found.importer)) == unit_of(found.imported):
        return False
    return not any(is_within(found.imported, unit) for unit in MAY_IMPORT[importer])


def breaks_purity(found: Import) -> bool:
    return is_pure(found.importer) and found.imported.partition(".")[0] in IMPURE_IMPORTS


def breaks_third_party(found: Import) -> bool:
    top = found.imported.partition(".")[0]
    if is_ours(found.imported) or top in sys.stdlib_module_names:
        return False
    return not any(is_within(found.importer, unit) for unit in THIRD_PARTY.get(top, ()))


def report(found: Import) -> str:
    return f"{found.where}: {found.importer} imports {found.imported}"


def test_every_module_is_found() -> None:
    """A table that governs nothing would pass in silence."""
    names = {"policy.decision", "auth.identity", "router.effects", "schemas", "qpid_dispatch.management.client"}
    assert names <= modules().keys()
    assert not any(name.startswith("router.compat") for name in modules())
    assert any(found.importer == "schemas" and found.imported == "json" for found in imports())


@pytest.mark.parametrize(
    ("importer", "imported", "rule"),
    [
        ("router.core.addresses", "router.linkstate.paths", breaks_table),
        ("router.core.addresses", "policy.decide", breaks_table),
        ("policy.decide", "auth.identity", breaks_table),
        ("spark.jobs.denials", "router.effects", breaks_table),
        ("qpid_dispatch.management.client", "router.core", breaks_table),
        ("router.tools.qdstat", "qpid_dispatch.management.client", breaks_table),
        ("router.gate", "auth.tls", breaks_table),
        ("policy.decide", "time", breaks_purity),
        ("router.linkstate.machine", "asyncio", breaks_purity),
        ("auth.negotiation", "ssl", breaks_purity),
        ("router.connection", "cproton_ffi", breaks_third_party),
        ("auth.verifiers.files", "ldap3", breaks_third_party),
        ("router.io.server", "requests", breaks_third_party),
    ],
)
def test_a_wrong_import_is_noticed(importer: str, imported: str, rule: Callable[[Import], bool]) -> None:
    assert rule(Import(importer, imported, "somewhere"))


def test_packages_import_only_what_the_table_admits() -> None:
    assert [report(found) for found in imports() if breaks_table(found)] == []


def test_nobody_but_addressing_takes_an_address_apart() -> None:
    """What is judged and what is bound come of one reading of the text."""
    readers = {found.importer for found in imports() if is_within(found.imported, "policy.addressing.text")}
    assert readers == {"policy.addressing.address", "policy.addressing.lists"}


def test_packages_do_not_import_each_other_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for found in imports():
        if is_ours(found.imported) and unit_of(found.importer) != unit_of(found.imported):
            edges.setdefault(unit_of(found.importer), set()).add(unit_of(found.imported))

    def circle_through(path: list[str]) -> list[str] | None:
        for unit in sorted(edges.get(path[-1], ())):
            if unit in path:
                return [*path[path.index(unit) :], unit]
            if circle := circle_through([*path, unit]):
                return circle
        return None

    assert [circle for unit in sorted(edges) if (circle := circle_through([unit]))] == []


def test_pure_modules_import_nothing_of_the_world() -> None:
    assert [report(found) for found in imports() if breaks_purity(found)] == []


def test_pure_modules_do_not_open_files_or_import_by_name() -> None:
    banned = {"open", "input", "print", "__import__", "exec", "eval"}
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name} is pure and calls {node.func.id}()"
        for name, path in modules().items()
        if is_pure(name)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in banned
    ]
    assert wrong == []


def test_third_party_packages_stay_where_they_belong() -> None:
    assert [report(found) for found in imports() if breaks_third_party(found)] == []


def test_third_party_imports_and_declared_dependencies_are_the_same() -> None:
    """What is installed on a developer's machine by chance is missing on a user's, and what nobody imports is a risk
    taken for nothing.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in requirements}
    used = {found.imported.partition(".")[0] for found in imports() if not is_ours(found.imported)}
    used -= sys.stdlib_module_names
    assert {DISTRIBUTIONS.get(name, name) for name in used} == declared


@pytest.mark.parametrize("text", ["../" + "shared", "/" + "work/"])
def test_nothing_points_outside_the_repository(text: str) -> None:
    """What is not in the repository is not there for whoever clones it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    paths = (ROOT / name.decode() for name in listed.stdout.split(b"\0") if name)
    wrong = [str(path.relative_to(ROOT)) for path in paths if path.is_file() and text.encode() in path.read_bytes()]
    assert wrong == []
