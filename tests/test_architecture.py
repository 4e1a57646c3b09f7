"""The table of docs/architecture.md, read from the source with `ast`: who may import whom, and what pure means.

One finding per wrong import, with file and line. Imports inside functions and under TYPE_CHECKING count as well.
"""

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
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

# Room -> rooms of ours it may import. A module belongs to the room with the longest matching name. An entry admits the
# modules of that room, not those of the rooms inside it; an entry that is no room admits one module. Everybody may
# import itself; ROUTER_VOCABULARY is open to all of router.
ROUTER_VOCABULARY = ("router.effects", "router.values", "router.faults", "policy.addressing")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "schemas": (),
    "policies": (),
    "policy": ("schemas", "policy.addressing"),
    "policy.addressing": (),
    "policy.files": ("schemas", "policy"),
    "policy.files.regular": (),
    "policy.configuration": ("schemas", "policy", "policy.addressing", "policy.files"),
    "policy.analysis": ("schemas", "policy", "policy.addressing", "policy.files"),
    "policy.lint": (
        *("schemas", "policy", "policy.addressing", "policy.files", "policy.configuration", "policy.analysis"),
    ),
    # The files a verb or an editor is given; not a part of any verb.
    "policy.cli.sources": ("policy", "policy.analysis", "policy.files", "policy.files.regular"),
    # The SASL configuration, by the functions of the daemon's start.
    "policy.cli.sasl": ("policy.files", "policy.lint", "auth.verifiers"),
    "policy.editor": (
        *("schemas", "policy", "policy.files", "policy.files.regular", "policy.analysis", "policy.lint"),
        *("policy.cli.sources", "policy.cli.sasl"),
    ),
    "policy.cli": (
        *("schemas", "policy", "policy.addressing", "policy.files", "policy.files.regular", "policy.analysis"),
        *("policy.lint", "policy.cli.sources", "policy.cli.sasl", "policy.editor"),
    ),
    "auth": ("schemas", "policy.files.regular"),
    "auth.verifiers": ("schemas", "auth", "policy.files.regular"),
    "router": (),
    "router.values": (),
    "router.faults": (),
    "router.effects": ("router.values", "policy.configuration.log_levels"),
    "router.core": ROUTER_VOCABULARY,
    "router.linkstate": ROUTER_VOCABULARY,
    "router.network": ("router.linkstate", "router.core", "router.amqp", *ROUTER_VOCABULARY),
    "router.edge": ROUTER_VOCABULARY,
    "router.amqp": ROUTER_VOCABULARY,
    "router.amqp.guard": ("router.amqp", *ROUTER_VOCABULARY),
    "router.amqp.layout": ("router.amqp", *ROUTER_VOCABULARY),
    "router.amqp.engine": ("router.amqp", "router.amqp.guard", *ROUTER_VOCABULARY),
    "router.admission": ("policy", "auth.identity", *ROUTER_VOCABULARY),
    "router.web": ROUTER_VOCABULARY,
    "router.connection": (
        *("auth", "policy.replies", "policy.router_ids", "router.admission", "router.core", "router.edge"),
        "router.web",
        *("router.amqp", "router.amqp.engine", "router.amqp.layout", *ROUTER_VOCABULARY),
    ),
    "router.audit": ("schemas", *ROUTER_VOCABULARY),
    "router.management": (
        *("schemas", "policy", "policy.files", "policy.files.regular", "policy.configuration", *ROUTER_VOCABULARY),
    ),
    "router.management.client": (
        *("schemas", "auth", "policy.configuration", "router.amqp", "router.management", *ROUTER_VOCABULARY),
    ),
    "router.tools": (
        *("schemas", "auth", "policy.printing", "policy.configuration", "policy.files"),
        *("router.amqp", "router.management"),
        *("router.management.client", *ROUTER_VOCABULARY),
    ),
    "router.control": (
        *("schemas", "policies", "policy", "policy.analysis.pattern_notes"),
        *("policy.configuration", "policy.files.positioned_json", "policy.files.regular"),
        *("auth", "auth.verifiers"),
        *("router.amqp", "router.amqp.engine", "router.core", "router.admission"),
        *("router.connection", "router.audit", "router.management", "router.io", "router.network", "router.edge"),
        "router.web",
        *ROUTER_VOCABULARY,
    ),
    "router.io": (
        *("policy", "policy.files.regular", "auth.credentials", "router.amqp.buffers", "router.core.work"),
        *ROUTER_VOCABULARY,
    ),
    # Starts the program in a container: it prepares files, and becomes the daemon.
    "router.entry": ("schemas", "auth", "auth.verifiers", "policy.files.regular", "router.io", *ROUTER_VOCABULARY),
    # The program itself; its name is what unit files and scripts start.
    "router.io.daemon": (
        *("policies", "policy.configuration", "policy.printing", "router.control", "router.management", "router.io"),
        *("schemas", *ROUTER_VOCABULARY),
    ),
    "qpid_dispatch": (
        *("policy.files.conf_text", "policy.configuration", "router.management", "router.management.client"),
        *("router.tools", "router.values"),
    ),
    "qpid_dispatch_internal": (
        *("qpid_dispatch", "policy.configuration", "router.management", "router.tools", "schemas"),
    ),
    "qpid_dispatch_site": (),
    "spark": ("policy", "policy.addressing", "policy.files", "policy.lint", "policy.cli.sources", "schemas"),
}

# Third-party package -> the modules that may import it.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "idna": ("auth",),
    "jsonschema": ("policy", "router.audit.trail", "spark"),
    "referencing": ("policy",),
    "pysasl": ("auth",),
    "scramp": ("auth",),
    "cryptography": ("auth", "router.audit.chain", "spark.verify"),
    "jwt": ("auth.verifiers.token_keys", "auth.verifiers.tokens"),
    "ldap3": ("auth.verifiers.ldap_wire",),
    "gssapi": ("auth.verifiers.kerberos",),
    "proton": ("router.amqp.engine.library",),
    "cproton": ("router.amqp.engine.library",),
    "cproton_ffi": ("router.amqp.engine.library",),
    "cffi": ("router.amqp.engine.steps_build", "router.amqp.guard.frames_build", "router.amqp.layout.walk_build"),
    "uvloop": ("router.io",),
    "h11": ("router.web.requests", "router.web.layer"),
    "wsproto": ("router.web.websocket",),
    "prometheus_client": ("router.web.exposition",),
    "rich": ("policy.cli", "router.tools", "spark"),
    "pyspark": ("spark",),
    "pyarrow": ("spark",),
    "numpy": ("spark",),
    "jinja2": ("spark.pages.page", "spark.verbs.report"),
    "markupsafe": ("spark.pages.page",),
    "orjson": ("spark",),
    "jsonschema_rs": ("spark",),
    "pygls": ("policy.editor.server", "policy.editor.session"),
    "lsprotocol": ("policy.editor",),
}
# Where the import name is not the distribution's.
DISTRIBUTIONS = {
    "prometheus_client": "prometheus-client",
    "jsonschema_rs": "jsonschema-rs",
    "jwt": "pyjwt",
    "proton": "python-qpid-proton",
    "cproton": "python-qpid-proton",
    "cproton_ffi": "python-qpid-proton",
}

# Values in, effects out: no clock, no chance, no world.
PURE = (
    *("policy", "auth.sasl_frames", "auth.negotiation", "router.core", "router.linkstate", "router.admission"),
    *("router.audit.event", "router.network", "router.edge", "router.web"),
)
NOT_PURE = (
    "router.web.static_files",
    *("policy.cli", "policy.files.regular", "policy.editor.documents", "policy.editor.projects"),
    *("policy.editor.checking", "policy.editor.worker", "policy.editor.analyst", "policy.editor.session"),
    *("policy.editor.messages", "policy.editor.server"),
)
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
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's source."""
    gc.disable()  # no cycle is made, and what there is already would be gone through again and again
    try:
        return tuple(ast.walk(ast.parse(path.read_text("utf-8"), str(path))))
    finally:
        gc.enable()


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for name, path in modules().items() for found in imports_of(name, path))


def imports_of(name: str, path: Path) -> Iterator[Import]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    file = path.relative_to(ROOT)
    for node in nodes(path):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        where = f"{file}:{node.lineno}"
        if isinstance(node, ast.Import):
            yield from (Import(name, alias.name, where) for alias in node.names)
        else:
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
    if not is_ours(found.imported) or (importer := unit_of(found.importer)) == (room := unit_of(found.imported)):
        return False
    return not any(room == entry or is_within(found.imported, entry) for entry in entries_of(importer, room))


def entries_of(importer: str, room: str) -> Iterator[str]:
    """What the table admits to `importer` and may concern `room`."""
    return (entry for entry in MAY_IMPORT[importer] if entry == room or entry not in MAY_IMPORT)


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
        ("router.core.addresses", "router.control.router", breaks_table),
        ("router.core.addresses", "policy.decide", breaks_table),
        ("policy.decide", "auth.identity", breaks_table),
        ("policy.decide", "policy.lint.rules", breaks_table),
        ("router.control.router", "policy.cli.main", breaks_table),
        ("spark.jobs.denials", "router.effects", breaks_table),
        ("qpid_dispatch.management.client", "router.core", breaks_table),
        ("router.tools.qdstat", "qpid_dispatch.management.client", breaks_table),
        ("router.admission.connection_gate", "auth.tls", breaks_table),
        ("policy.decide", "time", breaks_purity),
        ("router.core.addresses", "asyncio", breaks_purity),
        ("auth.negotiation", "ssl", breaks_purity),
        ("router.connection.accepted", "cproton_ffi", breaks_third_party),
        ("auth.verifiers.files", "ldap3", breaks_third_party),
        ("router.control.server", "requests", breaks_third_party),
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


def circles(edges: Mapping[str, set[str]]) -> Iterator[frozenset[str]]:
    """The groups of nodes that reach each other (Tarjan's strongly connected components of more than one)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[frozenset[str]]:
        index[node] = low[node] = len(index)
        stack.append(node)
        for following in sorted(edges.get(node, ())):
            if following not in index:
                yield from visit(following)
            if following in stack:
                low[node] = min(low[node], low[following])
        if low[node] == index[node]:
            at = stack.index(node)
            group = frozenset(stack[at:])
            del stack[at:]
            if len(group) > 1:
                yield group

    for node in sorted(edges):
        if node not in index:
            yield from visit(node)


def test_a_circle_is_noticed() -> None:
    assert set(circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}})) == {frozenset("bc")}


def test_files_do_not_import_each_other_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for found in imports():
        if found.imported in modules() and found.imported != found.importer:
            edges.setdefault(found.importer, set()).add(found.imported)
    assert list(circles(edges)) == []


def test_rooms_do_not_import_each_other_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for found in imports():
        if is_ours(found.imported) and unit_of(found.importer) != unit_of(found.imported):
            edges.setdefault(unit_of(found.importer), set()).add(unit_of(found.imported))
    assert list(circles(edges)) == []


MAX_CLASS_LINES = 300
MAX_PARAMETERS = 8
# Class -> why it is larger. A value (a dataclass) has as many fields as it has.
LONG_CLASSES = {
    "router.amqp.engine.connection.Engine": "bytes, events and answers of one connection share its proton objects",
    "router.connection.peer_links.PeerLinks": "every way in which a link begins and ends: none may miss a count",
    "router.core.out_links.OutLink": "room, queue and outcomes of one receiver are one account",
    "router.connection.accepted.Connection": "all that counts as a failure before the Open: none may be missed",
    "router.amqp.guard.machine.Guard": "one state machine: a rule in another file could be forgotten",
}
LONG_CONSTRUCTORS = {
    "router.audit.trail.AuditLog": "its limits and its clocks, which tests replace one by one",
}


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for name, path in modules().items():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                yield f"{name}.{node.name}", node


def test_classes_are_short_or_say_why_not() -> None:
    """Docstrings are not counted."""

    def lines(node: ast.ClassDef) -> int:
        documented = [
            each.body[0]
            for each in ast.walk(node)
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(each)
        ]
        return (node.end_lineno or 0) - node.lineno - sum((d.end_lineno or 0) - d.lineno + 1 for d in documented)

    long = {name for name, node in classes() if lines(node) >= MAX_CLASS_LINES}
    assert long == set(LONG_CLASSES)


def test_constructors_take_few_parameters_or_say_why_not() -> None:
    def count(node: ast.ClassDef) -> int:
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                return len(member.args.args) + len(member.args.kwonlyargs) - 1
        return 0

    assert {name for name, node in classes() if count(node) > MAX_PARAMETERS} == set(LONG_CONSTRUCTORS)


def test_pure_modules_import_nothing_of_the_world() -> None:
    assert [report(found) for found in imports() if breaks_purity(found)] == []


def test_pure_modules_do_not_open_files_or_import_by_name() -> None:
    banned = {"open", "input", "print", "__import__", "exec", "eval"}
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name} is pure and calls {node.func.id}()"
        for name, path in modules().items()
        if is_pure(name)
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in banned
    ]
    assert wrong == []


def test_the_core_and_the_wires_are_typed() -> None:
    """`Any` at the border between the core and the engine would let either change a member and break the other."""
    untyped = {"router.core.views", "router.core.treatments"}  # rows and attributes of management entities
    wires = {"router.amqp.engine.links", "router.amqp.engine.intake"}
    typed = {name for name in modules() if is_within(name, "router.core") or name in wires} - untyped
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for name, path in modules().items()
        if name in typed
        for node in nodes(path)
        if isinstance(node, ast.Name) and node.id == "Any"
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
    declared.remove("pandas")  # pyspark takes any version of it, and does not work with 3
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
