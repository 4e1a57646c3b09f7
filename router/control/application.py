"""From a validated configuration to a running router, in the load order of docs/spec/management.md §1.3.

Each `create_*` is also what a management CREATE of that type does: the file is an ordered list of CREATEs.
"""

import asyncio
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from auth.verifiers.files import UserFileError
from auth.verifiers.sasl_config import SaslConfigError
from policy.addressing.address import Address
from policy.failures import read_failure_rule
from policy.rights import MANAGEMENT_KEY, NOTHING, UNRESTRICTED
from policy.ruleset import PolicyError, Ruleset
from policy.usage import UsageLedger
from router.admission.candidate import Shadow
from router.admission.connection_gate import Gate
from router.audit.trail import AuditLog
from router.control.allocators import allocator_rows
from router.control.bans_in_force import Bans
from router.control.credentials import Credentials
from router.control.endpoints import Endpoints, family_of
from router.control.frame_trace import FrameTrace
from router.control.logs import LogFileError, Logs
from router.control.management_service import ManagementService
from router.control.reporting import Reporting
from router.control.router import Router
from router.control.security import Authentication
from router.control.shadow_folder import SHADOW_DIR, SHADOW_TYPES, ShadowFolder
from router.control.vhosts import Vhosts, compile_configured, place_of, tell_of
from router.core.core import Core
from router.core.in_links import InLink
from router.core.treatments import AddressBook
from router.core.views import (
    address_rows,
    find_address_row,
    find_link_by_name,
    find_link_row,
    link_rows,
    totalling,
)
from router.core.watch import NORMAL, Thresholds
from router.effects import AdmissionFailed, Audit, Effect, Log, RequestMembers, audit_event
from router.faults import fault_text
from router.io.folder_watch import FolderWatch
from router.io.memory import virtual_bytes, virtual_text
from router.io.workers import Workers
from router.management.agent import Agent, Requester
from router.management.config import Configuration, ConfiguredEntity, is_policy_file
from router.management.entities import EntityStore, ManagementError
from router.management.host_values import HostValues
from router.management.logrules import LogSettingError, TimeStyle, rules_from, settings_of
from router.management.rules import management_directories
from router.management.schema import Schema

AUDIT_DRAIN_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class _Rows:
    """A management provider around a function."""

    make: Callable[[], Iterator[Mapping[str, Any] | None]]

    def rows(self) -> Iterator[Mapping[str, Any] | None]:
        return self.make()


@dataclass(frozen=True, slots=True)
class _PagedRows:
    """A management provider around functions: of the number of the first row, of an identity and of a name."""

    page: Callable[[int], Iterator[Mapping[str, Any]]]
    by_identity: Callable[[str], Mapping[str, Any] | None]
    by_name: Callable[[str], Mapping[str, Any] | None]

    def rows(self) -> Iterator[Mapping[str, Any]]:
        return self.page(0)

    def find(self, column: str, value: str) -> Mapping[str, Any] | None:
        return self.by_identity(value) if column == "identity" else self.by_name(value)


class StartError(Exception):
    """The router cannot start; the text begins with its class as §2.3 wants: `Python: PolicyError: …`."""


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
    ) -> None:
        """read_at_ns  when reading the configuration began, ns since 1970 UTC"""
        self._thresholds = thresholds
        self._read_at_ns = read_at_ns
        # Types that 1.20 does not know are spoken of only where they are used: clients count the types.
        self.schema = schema if configuration.policy[SHADOW_DIR] else schema.without(*SHADOW_TYPES)
        self.configuration = configuration
        self.logs = logs
        self.version = version
        self.attributes: Mapping[str, Any] = configuration.router
        self.audit: AuditLog | None = None
        self.trace = FrameTrace(logs.write_frame)
        self.addresses = AddressBook(str(self.attributes["defaultDistribution"]))
        self.stopping = asyncio.Event()
        self.failure: str | None = None  # why it stops by itself
        self.candidate: ShadowFolder | None = None  # only where shadowPolicyDir is set
        self._reloading: asyncio.Task[None] | None = None
        self._wants_reload = False
        self._watch: FolderWatch | None = None  # of policyDir
        self._watching: list[asyncio.Task[None]] = []
        self._credentials: Credentials | None = None

    # Effects

    def emit(self, effect: Effect) -> None:
        """Carry out what the control plane asks for."""
        match effect:
            case Log():
                self.logs.write_effect(effect)
            case Audit(event=event, time_s=time_s):
                if self.audit is not None:
                    self.audit.record(event, time_s)
            case AdmissionFailed(remote_host=remote_host):
                self.bans.note_failure(remote_host)

    def _log(self, module: str, level: Any, text: str) -> None:
        self.logs.write(module, level, text)

    def on_loop_error(self, context: Mapping[str, Any]) -> None:
        """Something raised outside any connection: said, without what the peer may have sent."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self._log("SERVER", "error", f"{context['message']}: {error.strerror}")
            return
        what = fault_text(error) if error is not None else "no exception"
        self._log("ERROR", "error", f"{context['message']}: {what}")

    # Start

    async def start(self) -> None:
        """Apply everything; returns when the listeners of the configuration have been tried. Errors: StartError."""
        configuration = self.configuration
        for early in configuration.early_logs:
            self.emit(early)
        self._apply_logs()
        for late in configuration.late_logs:
            self.emit(late)
        self._start_audit()
        if self.attributes["mode"] != "standalone":
            # A router that is half part of a network would drop messages without a word.
            raise StartError(
                f"Configuration: router mode '{self.attributes['mode']}' is not supported by this version: "
                "expected standalone"
            )
        router_id = str(self.attributes["id"])
        self._log("SERVER", "info", f"Container Name: {router_id}")
        self._log("ROUTER", "info", "Router started in Standalone mode")
        self._log("ROUTER", "info", f"Version: {self.version}")
        try:
            authentication = Authentication.load(self.attributes)
        except (SaslConfigError, UserFileError) as error:
            raise StartError(f"Configuration: {error}") from None
        workers = Workers(authentication.verify, lambda text: self._log("AUTHSERVICE", "error", text))
        shadow = Shadow(self.emit) if configuration.policy[SHADOW_DIR] else None
        gate = Gate(self._compile_policy(), UsageLedger(), self.emit, shadow)
        gate.recorder.explains = configuration.policy["verboseDenials"] is True
        self.router = Router(
            router_id=router_id,
            version=self.version,
            gate=gate,
            workers=workers,
            emit=self.emit,
            treatment_of=self.addresses.treatment_of,
            trace=self.trace,
            thresholds=self._thresholds,
        )
        if self.audit is not None:
            self.router.redecision.has_much_to_write = self.audit.has_much_to_write
        if shadow is not None:
            self.candidate = ShadowFolder(configuration.policy, shadow, gate, self.router.connections, self.emit)
        self._trace_as_logged()
        self._log("ROUTER_CORE", "info", f"Router Core thread running. 0/{router_id}")
        self._log("AGENT", "info", "Activating management agent on $_management_internal")
        self._log_policy(gate.ruleset)
        self._start_management(authentication)
        for name in gate.ruleset.vhosts:
            self._log("POLICY", "info", f"Created policy rules for vhost {name}")
        self._watch_policy_dir()
        self._watch_users(authentication.user_file)

    def _start_management(self, authentication: Authentication) -> None:
        """The entity store takes in the file through the handlers that serve management requests too."""
        store = self.store = EntityStore(self.schema, self.emit, self.core.next_identity, self.is_agent_debugged)
        endpoints = self.endpoints = Endpoints(self.router, authentication, self.emit)
        store.on_create("sslProfile", endpoints.create_ssl_profile)
        store.on_delete("sslProfile", endpoints.delete_ssl_profile)
        store.on_create("authServicePlugin", endpoints.create_plugin)
        store.on_delete("authServicePlugin", endpoints.delete_plugin)
        store.on_create("address", self.create_address)
        store.on_delete("address", self.addresses.remove)
        rule = read_failure_rule(self.configuration.policy)
        bans = self.bans = Bans(self.router, store, rule, self.emit)
        reporting = self.reporting = Reporting(self.router.gate, self.router.clock())
        self.router.on_second += [bans.on_second, reporting.on_second]
        store.on_create("ban", bans.create)
        store.on_delete("ban", bans.delete)
        store.on_create("connector", endpoints.create_connector)
        store.on_delete("connector", endpoints.delete_connector)
        # The vhosts and listeners of the file come as a whole: compiled once, opened last.
        store.on_create("vhost", lambda _attributes: None)
        store.on_create("listener", lambda _attributes: None)
        for entity in self.configuration.entities:
            try:
                store.load((entity,))
            except ManagementError as error:
                raise StartError(f"{_start_text(error)}{_place(entity)}") from None
        gate = self.router.gate
        self.vhosts = Vhosts(self.configuration, store, gate, self.emit, self.on_policy_change)
        store.on_create("vhost", self.vhosts.create)
        store.on_update("vhost", self.vhosts.update)
        store.on_delete("vhost", self.vhosts.delete)
        store.on_create("listener", endpoints.create_listener)
        store.on_delete("listener", endpoints.delete_listener)
        store.on_update("log", self.update_log)
        core, candidate = self.core, self.candidate
        agent = Agent(
            self.schema,
            store,
            {
                "router": _Rows(self.router_rows),
                "connection": _PagedRows(
                    self.router.connection_rows, self.router.find_connection_row, lambda _name: None
                ),
                "router.link": _PagedRows(
                    partial(link_rows, core), partial(find_link_row, core), partial(find_link_by_name, core)
                ),
                "router.address": _PagedRows(
                    partial(address_rows, core), partial(find_address_row, core), partial(find_address_row, core)
                ),
                "ban": _PagedRows(bans.page, bans.find, bans.find_by_name),
                "connector": _Rows(self.connector_rows),
                "policy": _Rows(self.policy_rows),
                "vhostStats": _PagedRows(self.vhost_stats_rows, self.find_vhost_stats_row, self.find_vhost_stats_row),
                **({name: _Rows(make) for name, make in candidate.views.items()} if candidate is not None else {}),
                "logStats": _Rows(self.logs.ring.rows),
                "allocator": _Rows(self.allocator_rows),
            },
            self.emit,
            log_entries=self.logs.ring.entries,
            update_connection=self.update_connection,
            is_debug_enabled=self.is_agent_debugged,
            host_values=self._host_values(),
            may_record=lambda: self.audit is None or self.audit.has_room(),
        )
        ManagementService(
            self.core,
            agent,
            self.requester,
            self.reply_address,
            self.emit,
            self.router.work.finish,
            self.vhosts.names,
        )
        # Edge routers beat here; there are none yet, but operators' scripts count the address.
        self.core.subscribe("_$qd.edge_heartbeat", lambda _payload, _link: None)

    def is_agent_debugged(self) -> bool:
        return self.logs.rules.is_enabled("AGENT", "debug")

    def on_policy_change(self, before: Ruleset) -> None:
        """Other rules are in force: they hold for new connections, and for open ones where the policy says so."""
        ruleset = self.router.gate.ruleset
        self.router.expiry.learn(ruleset)
        if self.configuration.policy["onPolicyChange"] == "enforce" and ruleset.digest != before.digest:
            self.router.redecision.begin("policy_change")

    def update_connection(self, identity: str, changes: Mapping[str, object], requester: int | None) -> None:
        """adminStatus "deleted" drops the connection (routing §1.10)."""
        connection = self.router.connections.get(int(identity))
        if "enableProtocolTrace" in changes and connection is not None:
            self.trace.switch(connection, bool(changes["enableProtocolTrace"]))
        if changes.get("adminStatus") == "deleted" and self.router.close_connection(int(identity)):
            by = f"[C{requester}]" if requester is not None else "[management]"
            text = f"[C{identity}] Connection force-closed by request from connection {by}"
            self._log("ROUTER_CORE", "info", text)

    def _apply_logs(self) -> None:
        style = TimeStyle(
            is_utc=bool(self.attributes.get("timestampsInUTC")),
            format=self.attributes.get("timestampFormat") or None,
        )
        try:
            self.logs.use(rules_from((each.attributes for each in self.configuration.of_type("log")), style))
        except LogSettingError as error:
            raise StartError(f"Configuration: {error}") from None
        except LogFileError as error:
            logs = self.configuration.of_type("log")
            places = [_place(each, "outputFile") for each in logs if each.attributes.get("outputFile") == error.name]
            raise StartError(f"Configuration: {error}: {error.reason}{places[0] if places else ''}") from None

    def _start_audit(self) -> None:
        folder = self.attributes.get("auditDir")
        if not folder:
            return
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            loop.call_soon_threadsafe(self._log, "POLICY", "critical", text)

        try:
            self.audit = AuditLog(
                Path(str(folder)),
                router_id=str(self.attributes["id"]),
                clock=time.time,
                on_trouble=report,
            )
        except OSError as error:
            raise StartError(f"Configuration: auditDir {folder}: {error.strerror}") from None

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

    def _log_policy(self, ruleset: Ruleset) -> None:
        folder = self.configuration.policy.get("policyDir") or ""
        self._log(
            "POLICY",
            "info",
            f"Policy configured maxConnections: {ruleset.max_connections}, policyDir: '{folder}',"
            f"access rules enabled: '{str(ruleset.is_enabled).lower()}', "
            f"use hostname patterns: '{str(ruleset.uses_name_patterns).lower()}'",
        )
        self._log("POLICY", "info", f"Policy fallback defaultVhost is defined: '{ruleset.default_vhost}'")

    async def open_listeners(self) -> None:
        """Say Operational, then listen: everything else is in place by now."""
        listeners = self.configuration.of_type("listener")
        ready = []
        for entity in listeners:
            try:
                ready.append((entity, self.endpoints.listener(entity.attributes)))
            except ManagementError as error:
                raise StartError(f"{_start_text(error)}{_place(entity)}") from None
        threads = self.attributes["workerThreads"]
        self._log("SERVER", "notice", f"Operational, {threads} Threads Running (process ID {os.getpid()})")
        self._log("SERVER", "notice", f"Process VmSize {virtual_text()}")
        has_connector = bool(self.configuration.of_type("connector"))
        # Side by side: one whose host name nobody knows must not keep the others waiting.
        opened = await asyncio.gather(
            *(self.router.open_port(listener, **family_of(entity.attributes)) for entity, listener in ready),
            return_exceptions=True,
        )
        for number, ((_, listener), result) in enumerate(zip(ready, opened, strict=True)):
            if isinstance(result, OSError):
                self.endpoints.log_listener_error(listener.place, result)
                if number == 0 and not has_connector:
                    self._log("SERVER", "critical", f"Shutting down, required listener failed {listener.place}")
                    self.failure = f"required listener failed {listener.place}: {result.strerror or result}"
                    self.stopping.set()
            elif isinstance(result, BaseException):
                raise result

    # Entities

    def create_address(self, attributes: Mapping[str, Any]) -> None:
        self.addresses.add(attributes)

    def update_log(self, _before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        try:
            self.logs.configure(after["module"], settings_of(after))
        except (LogSettingError, LogFileError) as error:
            raise ManagementError(500, f"CError: Configuration: {error}") from None
        self._trace_as_logged()

    def _trace_as_logged(self) -> None:
        self.trace.set_level(self.logs.rules.is_enabled("PROTOCOL", "trace"), list(self.router.connections.values()))

    # Reload

    def _watch_policy_dir(self) -> None:
        every_s = int(str(self.configuration.policy["policyDirWatchSeconds"]))
        folder = str(self.configuration.policy["policyDir"] or "")
        if not folder or not every_s:
            return
        watch = self._watch = FolderWatch(folder, is_policy_file, self.vhosts.reload, read_at_ns=self._read_at_ns)

        self._look_again(watch, every_s, "policyDir")  # after a fault the rules in force stay

    def _look_again(self, watch: FolderWatch, every_s: int, what: str) -> None:
        def failed(error: Exception) -> None:
            self._log("ERROR", "error", f"Watching {what}: {fault_text(error)}")

        self._watching.append(asyncio.get_running_loop().create_task(watch.run(every_s, failed)))

    def _watch_users(self, path: str | None) -> None:
        """onPolicyChange: enforce covers who may log in as well. Errors: StartError."""
        if path is None or self.configuration.policy["onPolicyChange"] != "enforce":
            return
        router = self.router
        try:
            self._credentials = Credentials(path, router.connections, router.work.finish, self.emit)
        except UserFileError as error:
            raise StartError(f"Configuration: {error}") from None
        router.is_revoked = self._credentials.is_revoked
        every_s = int(str(self.configuration.policy["policyDirWatchSeconds"]))
        if every_s:
            self._look_again(self._credentials.watch, every_s, "the file of users")

    def reload(self) -> None:
        """SIGHUP: log files, certificates and the policy folders are read anew; what cannot be used changes nothing."""
        self._wants_reload = True
        if self._reloading is None:
            self._reloading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        try:
            while self._wants_reload:  # a signal that comes while we read means: once more
                self._wants_reload = False
                self.logs.reopen()
                self.endpoints.reload_certificates()
                if self._watch is not None:
                    await self._watch.take()
                if self.vhosts.has_folder:
                    await self.vhosts.reload()
                if self._credentials is not None:
                    await self._credentials.watch.take()
                    await self._credentials.read_again()
                if self.candidate is not None:
                    self.candidate.reload()
                self._log("SERVER", "notice", "Reload on SIGHUP finished")
        except Exception as error:  # our own fault: the router goes on with what it has
            self._log("ERROR", "error", f"Reload on SIGHUP: {fault_text(error)}")
        finally:
            self._reloading = None

    # Views

    @property
    def core(self) -> Core:
        return self.router.core

    def requester(self, connection_id: int) -> Requester:
        """What a connection may do by management now.

        Attack: to ask for what takes long, then for a change, and to be gone before its turn. Who is gone may not.
        """
        connection = self.router.connections.get(connection_id)
        ruleset = self.router.gate.ruleset
        if connection is None:
            rights = NOTHING if ruleset.is_enabled else UNRESTRICTED
            return Requester(connection_id=connection_id, rights=rights, is_admin_update_allowed=False)
        gate = connection.gate
        gate.catch_up()
        rights = gate.management_rights()
        settings = gate.settings
        return Requester(
            connection_id=connection_id,
            rights=rights,
            rule=settings.rule(MANAGEMENT_KEY, rights) if settings is not None and rights.is_set else None,
            facts={**gate.facts(), "ruleset_digest": ruleset.digest},
            is_admin_update_allowed=gate.may_update_admin_status(),
        )

    def _host_values(self) -> HostValues:
        """What may be named by management: nothing where the router keeps its rules and records."""
        policy, router = self.configuration.policy, self.attributes
        kept = (policy["policyDir"], policy[SHADOW_DIR], router.get("auditDir"), router.get("saslConfigDir"))
        return HostValues(
            management_directories(router),
            [self.configuration.path, *(str(each) for each in kept if each)],
            is_governed=self.router.gate.ruleset.is_enabled,
        )

    def reply_address(self, link: InLink, reply_to: str) -> Address | None:
        """A requester may have replies sent to where it receives itself, or may send anyway.

        Otherwise whoever may use $management could make the router write to any address in its own name.
        """
        connection = self.router.connections.get(link.attachment.connection_id)
        if connection is None or connection.peer is None:
            return None
        address = connection.peer.resolve(reply_to)
        if isinstance(address, Address):
            connection.gate.catch_up()
            if connection.gate.may_send_to(address):
                return address
            live = self.core.table.find(address)
            if live is not None and any(out.address is live for out in connection.peer.attachment.out_links):
                return address
        self._log("POLICY", "info", f"[C{connection.connection_id}] DENY management reply to '{reply_to}'")
        why = "neither received by the requester nor among its targets"
        detail = f"reply-to is {why}" if isinstance(address, Address) else f"reply-to: {address.why}"
        request: RequestMembers = {"address": reply_to, "detail": detail}
        event = audit_event("management", "deny", "forbidden_operation", connection.gate.facts(), request)
        self.emit(Audit(event=event))
        return None

    def router_rows(self) -> Iterator[Mapping[str, Any] | None]:
        for totals in totalling(self.core):
            if totals is None:
                yield None
                continue
            yield {
                **self.attributes,
                "name": self.attributes["id"],
                "identity": "1",
                "version": self.version,
                "hostName": platform.node(),
                "metadata": self.attributes.get("metadata"),
                **totals,
                "connectionCount": self.router.open_count,
                "uptimeSeconds": int(time.monotonic()) - self.router.started_at_s,
                "memoryUsage": virtual_bytes(),
            }

    def connector_rows(self) -> Iterator[Mapping[str, Any]]:
        for name, connecting in self.router.connectors.items():
            yield {
                "name": name,
                "failoverUrls": connecting.failover_urls,
                "connectionStatus": connecting.status,
                "connectionMsg": connecting.message,
            }

    def allocator_rows(self) -> Iterator[Mapping[str, Any]]:
        return allocator_rows(self.core, self.router.connections.values(), log_entries=len(self.logs.ring))

    def policy_rows(self) -> Iterator[Mapping[str, Any]]:
        counters = {**self.router.gate.ledger.policy_counters(), **self.vhosts.counters()}
        yield {**self.configuration.policy, **counters}

    def vhost_stats_rows(self, offset: int = 0) -> Iterator[Mapping[str, Any]]:
        return map(self._vhost_stats_row, self.router.gate.ledger.vhost_names()[offset:])

    def find_vhost_stats_row(self, identity: str) -> Mapping[str, Any] | None:
        name = identity.removeprefix("vhostStats/")
        is_known = name != identity and self.router.gate.ledger.has_vhost(name)
        return self._vhost_stats_row(name) if is_known else None

    def _vhost_stats_row(self, name: str) -> Mapping[str, Any]:
        identity = f"vhostStats/{name}"
        return {"name": identity, "identity": identity, **self.router.gate.ledger.vhost_stats(name)}

    # The end

    async def stop(self) -> None:
        """Close everything; audit events that are still queued are written first."""
        for task in (*self._watching, self._reloading):
            if task is not None:
                task.cancel()
        await self.router.stop()
        self.reporting.stop()
        if self.candidate is not None:
            await self.candidate.stop()
        self._log("SERVER", "notice", "Shut Down")
        if self.audit is not None and not await asyncio.to_thread(self.audit.close, AUDIT_DRAIN_S):
            self._log("POLICY", "critical", f"{self.audit.lost} audit events could not be written")


def _start_text(error: ManagementError) -> str:
    """A failed CREATE as start-up prints it: `CError` is the management protocol's word (§2.3)."""
    if error.description.startswith("CError: "):
        return error.description.removeprefix("CError: ")
    return f"Python: {error.description}" if error.status == 500 else f"Configuration: {error.description}"


def _place(entity: ConfiguredEntity, attribute: str = "") -> str:
    """` (file:line)` of an attribute, else of its entity; nothing where that is not known."""
    line = entity.source.line_of((attribute,))
    return f" ({entity.source.file}:{line})" if line is not None else ""
