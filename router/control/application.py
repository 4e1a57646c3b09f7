"""Starts a router from a validated configuration, in the load order of docs/spec/management.md §1.3.

Each `create_*` is also what a management CREATE of that type does: the file is an ordered list of CREATEs.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from auth.verifiers.files import UserFileError
from auth.verifiers.sasl_config import SaslConfigError
from policy.configuration.kinds.router import management_directories
from policy.configuration.log_levels import LogSettingError
from policy.configuration.schema import Schema
from policy.failures import read_failure_rule
from policy.rights import read_rights
from policy.ruleset import PolicyError, Ruleset
from policy.usage import UsageLedger
from router.admission.candidate import Shadow
from router.admission.connection_gate import Gate
from router.admission.folding import Folding
from router.amqp.engine import limit_slices
from router.audit.chain import SigningKeyError
from router.audit.trail import AuditLog
from router.connection.terms import Listener
from router.control.allocators import allocator_owner
from router.control.audit_log import allows_of, check_audit_log, open_audit_log
from router.control.authenticator_stats import authenticator_stats_owner
from router.control.authenticators import Authenticators
from router.control.bans_in_force import Bans, guesses_of
from router.control.budget_view import budget_owner
from router.control.connection_entity import connection_owner
from router.control.connectors import Connectors
from router.control.core_entities import core_owners
from router.control.credential_watch import watch_credentials
from router.control.drain import Drain
from router.control.exchange_entity import ExchangeEntities
from router.control.frame_trace import FrameTrace
from router.control.link_route_entity import container_owners
from router.control.listeners import Listeners
from router.control.log_entities import log_owners, trace_as_logged
from router.control.logs import LogFileError, Logs
from router.control.management_service import ManagementService
from router.control.network_entities import node_rows_owner, nodes_of
from router.control.networking import join, network_place, start_text
from router.control.profiling import Profiling
from router.control.reloading import Reloading
from router.control.reporting import Reporting
from router.control.requesters import Requesters
from router.control.revoked_certificates import RevokedCertificates
from router.control.router import Router
from router.control.router_entity import router_rows
from router.control.sasl_plugins import SaslPlugins
from router.control.shadow_folder import SHADOW_DIR, SHADOW_TYPES, ShadowFolder
from router.control.ssl_profiles import SslProfiles
from router.control.vhost_stats import vhost_stats_owner
from router.control.vhosts import Vhosts, compile_configured, place_of, tell_of
from router.control.web_sites import WebSites
from router.core.budget import BUDGET_KINDS, Budgets, Limits
from router.core.shedding import shed
from router.core.treatments import AddressBook
from router.core.watch import NORMAL, Thresholds
from router.effects import AdmissionFailed, Audit, Effect, Log, Refused
from router.faults import fault_text
from router.io.busy_poll import has_processor_to_spare
from router.io.memory import Trimmer, virtual_text
from router.io.memory_limit import Shortage, least_limit, refusing_limit, warning_of
from router.management.agent import Agent
from router.management.config import Configuration, ConfiguredEntity
from router.management.entities import EntityStore
from router.management.host_values import HostValues
from router.management.logrules import TimeStyle, rules_from
from router.management.node_operations import node_owner
from router.management.owners import DUMMY, Owner
from router.management.query import Rows
from router.management.requests import ManagementError

if TYPE_CHECKING:
    from router.network.host import Host

AUDIT_DRAIN_S: Final = 3.0
# Maximum time in which the messages and outcomes of one read may delay all other connections. A full read of small
# messages takes about as long. Stops messages that cost much more, for example for thousands of receivers each.
READ_SLICE_S: Final = 0.008


class StartError(Exception):
    """The router cannot start. The text begins with its class, as §2.3 wants: `Python: PolicyError: …`."""


class Application:
    """One router process: its configuration applied, its logs and audit log open."""

    def __init__(
        self,
        configuration: Configuration,
        schema: Schema,
        logs: Logs,
        *,
        version: str,
        thresholds: Thresholds = NORMAL,
        read_at_ns: int = 0,
        is_auth_service: bool = False,  # authenticates the clients of other routers, and routes nothing
        is_check: bool = False,
    ) -> None:
        """read_at_ns  when reading the configuration began, ns since 1970 UTC
        is_check    make everything that may fail, but open, write and call nothing
        """
        self._is_check = is_check
        self._is_service = is_auth_service
        self._thresholds = thresholds
        self._read_at_ns = read_at_ns
        # Schema types that 1.20 does not know are shown only if they are used: clients count the types.
        self.schema = schema if configuration.policy[SHADOW_DIR] else schema.without(*SHADOW_TYPES)
        self.configuration = configuration
        self.logs = logs
        self.version = version
        self.attributes: Mapping[str, Any] = configuration.router
        self.audit: AuditLog | None = None
        self.addresses = AddressBook(str(self.attributes["defaultDistribution"]))
        self.profiles = SslProfiles(self.emit)
        self.reloading = Reloading(self.emit)
        self.stopping = asyncio.Event()
        self.failure: str | None = None  # why the router stops by itself
        self.passed_over = [*configuration.passed_over]  # parts of the file that were ignored, with a warning for each
        self.candidate: ShadowFolder | None = None  # only if shadowPolicyDir is set
        self.network: Host | None = None  # only on an interior router
        self.sites: WebSites | None = None  # None until they are made

    # Effects

    def emit(self, effect: Effect) -> None:
        """Carries out an effect of the control plane."""
        match effect:
            case Audit(event=event, time_s=time_s):
                if self.sites is not None:
                    self.sites.on_event(event)
                if self.audit is not None:
                    self.audit.record(event, time_s)
            case Refused():
                self.router.gate.folding.record(effect)
            case AdmissionFailed(remote_host=remote_host):
                self.bans.note_failure(remote_host)
            case Log():
                self.logs.write_effect(effect)

    def _log(self, module: str, level: Any, text: str) -> None:
        self.logs.write(module, level, text)

    def on_loop_error(self, context: Mapping[str, Any]) -> None:
        """Logs an exception that was raised outside any connection, without data that a peer may have sent."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self._log("SERVER", "error", f"{context['message']}: {error.strerror}")
            return
        what = fault_text(error) if error is not None else "no exception"
        self._log("ERROR", "error", f"{context['message']}: {what}")

    # Start

    async def start(self) -> None:
        """Applies everything; returns when the listeners of the configuration have been tried. Errors: StartError."""
        limit_slices(READ_SLICE_S)
        configuration = self.configuration
        for early in configuration.early_logs:
            self.emit(early)
        _apply_logs(self.configuration, self.attributes, self.logs)
        for late in configuration.late_logs:
            self.emit(late)
        self._start_audit()
        router_id = str(self.attributes["id"])
        self._log("SERVER", "info", f"Container Name: {router_id}")
        self._log("ROUTER", "info", start_text(self.attributes))
        self._log("ROUTER", "info", f"Version: {self.version}")
        try:
            self.authenticators = Authenticators.load(self.attributes, self.emit)
        except (SaslConfigError, UserFileError) as error:
            raise StartError(f"Configuration: {error}{self._router_place('saslConfigDir')}") from None
        for text in self.authenticators.warnings:
            self._log("AUTHSERVICE", "warning", text)
        shadow = Shadow(self.emit) if configuration.policy[SHADOW_DIR] and not self._is_check else None
        folding = Folding(self.emit, time.monotonic, time.time, secrets.randbelow)
        folding.pace.rate = int(str(configuration.policy["maxRefusalRate"]))
        guesses, allows = guesses_of(configuration.policy), allows_of(self.attributes, self.emit)
        gate = Gate(self._compile_policy(), UsageLedger(), self.emit, shadow, None, folding, guesses, allows)
        gate.recorder.explains = configuration.policy["verboseDenials"] is True
        self.router = Router(
            router_id=router_id,
            version=self.version,
            gate=gate,
            emit=self.emit,
            treatment_of=self.addresses.treatment_of,
            trace=FrameTrace(self.logs.write_frame),
            thresholds=self._thresholds,
            place=network_place(self.attributes, self.addresses),
        )
        folding.pause = self.router.pause
        self.network = join(self.router, self.attributes, self.emit, has_test_hooks=self._thresholds is not NORMAL)
        self.drain = Drain(self.router, int(self.attributes["shutdownTimeout"]), self.stopping.set, self.emit)
        _tune(self.router, self.attributes)
        if self.audit is not None:
            self.router.redecision.has_much_to_write = self.audit.has_much_to_write
            self.router.accepting.is_unrecorded = self.audit.is_refusing
        if shadow is not None:
            self.candidate = ShadowFolder(configuration.policy, shadow, gate, self.router.connections, self.emit)
        trace_as_logged(self.logs, self.router)
        self._log("ROUTER_CORE", "info", f"Router Core thread running. 0/{router_id}")
        self._log("AGENT", "info", "Activating management agent on $_management_internal")
        for text in _policy_texts(configuration.policy, gate.ruleset):
            self._log("POLICY", "info", text)
        self._start_management()
        for name in gate.ruleset.vhosts:
            self._log("POLICY", "info", f"Created policy rules for vhost {name}")
        self._prepare_reload()

    def _start_management(self) -> None:
        """Creates the entities of the file through the owners that also serve management requests."""
        router, core, emit = self.router, self.router.core, self.emit
        store = EntityStore(self.schema, emit, core.next_identity, self.is_agent_debugged)
        profiles, plugins = self.profiles, SaslPlugins(router, self.profiles, emit)
        self.vhosts = Vhosts(self.configuration, store, router.gate, emit, self.on_policy_change)
        self.bans = Bans(router, store, read_failure_rule(self.configuration.policy), emit)
        rows = router_rows(router, self.attributes, self.audit)
        extra = partial(_beside_the_row, self.bans, self.vhosts)
        sites = self.sites = WebSites(router, rows, extra, emit, is_auth_service=self._is_service)
        show = partial(store.extensions.note, self.schema.types["listener"], {"listening": False})
        self.listeners = Listeners(router, self.authenticators, profiles, plugins, sites, emit, show_listening=show)
        self.reporting = Reporting(router.gate, router.clock())
        router.on_second += [self.bans.on_second, self.reporting.on_second]
        # The list of all owners of entities.
        store.own(
            node_owner(
                self.schema, store.extensions, nodes_of(self.network), self.logs.ring.entries, Profiling(emit).perform
            ),
            node_rows_owner(self.network, router.clock, router.wall_clock),
            Owner(type="router", rows=Rows(rows), operations={"DRAIN": self.drain.perform}),
            *log_owners(self.logs, router),
            profiles.owner,
            plugins.owner,
            *self.authenticators.owners,
            authenticator_stats_owner(lambda: self.authenticators.members),
            *core_owners(core, self.addresses),
            *container_owners(router.surroundings, router.peer_of),
            *ExchangeEntities(core, emit).owners,
            *self.vhosts.owners,
            vhost_stats_owner(router.gate.ledger),
            budget_owner(core),
            self.bans.owner,
            Connectors(router, profiles, emit, is_check=self._is_check).owner,
            self.listeners.owner,
            connection_owner(router),
            allocator_owner(core, router.connections, self.logs.ring),
            DUMMY,
            *(self.candidate.owners if self.candidate is not None else ()),
        )
        for entity in self.configuration.entities:
            try:
                self.passed_over += [f"{text}{place_in_file(entity)}" for text in store.load((entity,))]
            except ManagementError as error:
                raise StartError(f"{_start_text(error)}{place_in_file(entity, error.attribute)}") from None
        agent = Agent(
            self.schema,
            store,
            emit,
            is_debug_enabled=self.is_agent_debugged,
            host_values=self._host_values(),
            may_record=lambda: self.audit is None or self.audit.has_room(),
        )
        requesters = Requesters(router, read_rights(self.configuration.policy["networkManagement"]))
        ManagementService(
            core,
            agent,
            requesters.requester,
            requesters.reply_address,
            emit,
            router.work.finish,
            self.vhosts.names,
        )

    def is_agent_debugged(self) -> bool:
        return self.logs.rules.is_enabled("AGENT", "debug")

    def on_policy_change(self, before: Ruleset) -> None:
        """Puts new rules in force for new connections, and also for open ones if the policy says so."""
        ruleset = self.router.gate.ruleset
        self.router.expiry.learn(ruleset)
        if self.configuration.policy["onPolicyChange"] == "enforce" and ruleset.digest != before.digest:
            self.router.redecision.begin("policy_change")

    def _start_audit(self) -> None:
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            loop.call_soon_threadsafe(self._log, "POLICY", "critical", text)

        try:
            if self._is_check:
                check_audit_log(self.attributes)
            else:
                self.audit = open_audit_log(self.attributes, self.configuration.policy, report)
        except SigningKeyError as error:
            raise StartError(f"Configuration: auditSigningKey {error}{self._router_place('auditSigningKey')}") from None
        except OSError as error:
            what = f"auditDir {self.attributes['auditDir']}: {error.strerror}"
            raise StartError(f"Configuration: {what}{self._router_place('auditDir')}") from None

    def _router_place(self, attribute: str) -> str:
        return place_in_file(self.configuration.of_type("router")[0], attribute)

    def _compile_policy(self) -> Ruleset:
        try:
            ruleset = compile_configured(self.configuration, self.emit)
        except PolicyError as error:
            raise StartError(f"Python: PolicyError: {error}{place_of(error)}") from None
        for warning in ruleset.policy_warnings:
            self._log("POLICY", "warning", warning)
        for vhost in ruleset.vhosts.values():
            tell_of(ruleset, vhost, self.emit)
        return ruleset

    async def open_listeners(self) -> None:
        """Logs Operational and then listens; everything else is ready. Errors: StartError."""
        ready = made_listeners(self)
        listeners = self.configuration.of_type("listener")
        # One event loop serves all connections, whatever workerThreads says; scripts read the number in this line.
        self._log("SERVER", "notice", f"Operational, 1 Threads Running (process ID {os.getpid()})")
        self._log("SERVER", "notice", f"Process VmSize {virtual_text()}")
        _watch_memory(self.router, self.logs)
        failed = await self.listeners.open_all(ready)
        if failed is not None and not self.stopping.is_set():  # else the router was stopped in between
            number, why = failed
            self.failure = why + place_in_file(listeners[number], "port")
            self.stopping.set()

    # Reload

    def _prepare_reload(self) -> None:
        """Adds the steps of SIGHUP and the watched files. Errors: StartError."""
        policy, reloading = self.configuration.policy, self.reloading
        every_s = int(str(policy["policyDirWatchSeconds"]))
        reloading.add(self.logs.reopen, self.profiles.reload)
        self.router.on_second.append(self.profiles.on_second)
        if every_s:
            reloading.watch(self.profiles.watch, every_s, "the files of sslProfiles")
        if self.vhosts.has_folder:
            if every_s:
                watch = self.vhosts.watch(self._read_at_ns)
                reloading.watch(watch, every_s, "policyDir")
                reloading.add(watch.take)
            reloading.add(self.vhosts.reload)
            reloading.hurry_by(self.vhosts.hurry)
        if policy["onPolicyChange"] == "enforce":  # it applies to credentials as well
            revoked = RevokedCertificates(self.router.connections, self.router.work.finish, self.emit)
            self.profiles.on_adopted = revoked.on_adopted
            reloading.on_stop(revoked.stop)
            try:
                watch_credentials(self.router, self.authenticators, policy, reloading)
            except UserFileError as error:
                raise StartError(f"Configuration: {error}{self._router_place('saslConfigDir')}") from None
        if self.candidate is not None:
            reloading.add(self.candidate.reload)

    def reload(self) -> None:
        """Reads log files, certificates and the policy folders again (SIGHUP). What cannot be used changes nothing."""
        self.reloading.begin()

    def _host_values(self) -> HostValues:
        """Returns the host's values that management may name: never the places of the router's rules and records."""
        policy, router = self.configuration.policy, self.attributes
        kept = [policy["policyDir"], policy[SHADOW_DIR], router.get("auditDir"), router.get("saslConfigDir")]
        kept.append(router.get("auditSigningKey"))
        return HostValues(
            management_directories(router),
            [self.configuration.path, *(str(each) for each in kept if each)],
            is_governed=self.router.gate.ruleset.is_enabled,
        )

    # The end

    async def stop(self) -> None:
        """Closes everything; queued audit events are written first."""
        self.reloading.stop()
        await self.drain.end()
        self.authenticators.close()
        self.reporting.stop()
        if self.candidate is not None:
            await self.candidate.stop()
        self._log("SERVER", "notice", "Shut Down")
        if self.audit is not None and not await asyncio.to_thread(self.audit.close, AUDIT_DRAIN_S):
            self._log("POLICY", "critical", f"{self.audit.lost} audit events could not be written")


def _beside_the_row(bans: Bans, vhosts: Vhosts) -> Mapping[str, int]:
    """Returns the numbers of /metrics that are not in the router entity."""
    return {"bans": bans.count, **vhosts.in_force()}


def made_listeners(application: Application) -> list[tuple[Mapping[str, object], Listener]]:
    """Returns the attributes of each listener, and the listener to open. Errors: StartError."""
    if not application.configuration.of_type("listener"):
        text = "Nothing listens: the configuration has no listener section"
        application.emit(Log(module="SERVER", level="warning", text=text))
    ready = []
    for entity in application.configuration.of_type("listener"):
        try:
            ready.append((entity.attributes, application.listeners.made(entity.attributes)))
        except ManagementError as error:
            raise StartError(f"{_start_text(error)}{place_in_file(entity, error.attribute)}") from None
    return ready


def _policy_texts(policy: Mapping[str, object], ruleset: Ruleset) -> Iterator[str]:
    yield (
        f"Policy configured maxConnections: {ruleset.max_connections}, policyDir: '{policy.get('policyDir') or ''}',"
        f"access rules enabled: '{str(ruleset.is_enabled).lower()}', "
        f"use hostname patterns: '{str(ruleset.uses_name_patterns).lower()}'"
    )
    yield f"Policy fallback defaultVhost is defined: '{ruleset.default_vhost}'"


def _start_text(error: ManagementError) -> str:
    """Returns the text of a failed CREATE for the start. `CError` is a word of the management protocol (§2.3)."""
    if error.description.startswith("CError: "):
        return error.description.removeprefix("CError: ")
    return f"Python: {error.description}" if error.status == 500 else f"Configuration: {error.description}"


def place_in_file(entity: ConfiguredEntity, attribute: str = "") -> str:
    """Returns ` (file:line)` of an attribute, else of its entity; "" if the line is not known."""
    line = entity.source.line_of((attribute,))
    return f" ({entity.source.file}:{line})" if line is not None else ""


def _apply_logs(configuration: Configuration, attributes: Mapping[str, Any], logs: Logs) -> None:
    """Opens the configured logs. Errors: StartError."""
    style = TimeStyle(
        is_utc=bool(attributes.get("timestampsInUTC")),
        format=attributes.get("timestampFormat") or None,
    )
    try:
        logs.use(rules_from((each.attributes for each in configuration.of_type("log")), style))
    except LogSettingError as error:
        raise StartError(f"Configuration: {error}") from None
    except LogFileError as error:
        named = configuration.of_type("log")
        places = [
            place_in_file(each, "outputFile") for each in named if each.attributes.get("outputFile") == error.name
        ]
        raise StartError(f"Configuration: {error}: {error.reason}{places[0] if places else ''}") from None


def _watch_memory(router: Router, logs: Logs) -> None:
    """Warns if the budget is more than the process may have.

    If memory is short, closes the connections that hold most.
    """
    limit, refusing, core = least_limit(), refusing_limit(), router.core
    if (text := warning_of(limit, core.budgets.limits.router)) is not None:
        logs.write("SERVER", "warning", text)
    for each in {each for each in (limit, refusing) if each is not None}:
        shortage = Shortage(each, lambda: shed(core), lambda text: logs.write("SERVER", "error", text))
        router.on_second.append(shortage.on_second)
        if each == refusing:
            router.may_read = shortage.may_read


def _tune(router: Router, attributes: Mapping[str, Any]) -> None:
    """Applies the attributes of the router entity that concern its memory and its loop."""
    budgets = {kind: int(attributes[f"{kind}ByteBudget"]) for kind in BUDGET_KINDS}
    router.core.budgets = Budgets(Limits(**budgets))
    router.gate.entrance.limit_by(attributes, secrets.randbelow)
    router.progress.timeout_s = int(attributes["messageProgressTimeout"])
    router.surroundings.link_routes.may_outlive = bool(attributes["allowResumableLinkRoute"])
    handshakes = router.gate.entrance.handshakes
    router.on_second.append(Trimmer(lambda: router.core.budgets.router.held + handshakes.bytes_held).on_second)
    if has_processor_to_spare():
        seconds = int(attributes["busyPollMicroseconds"]) / 1e6
        router.busy_poll.look_for(seconds, is_in_network=attributes["mode"] != "standalone")
