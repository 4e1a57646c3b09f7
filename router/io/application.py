"""From a validated configuration to a running router, in the load order of docs/spec/management.md §1.3.

Each `create_*` is also what a management CREATE of that type does: the file is an ordered list of CREATEs.
"""

import asyncio
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from auth.tls import TlsProfileError
from auth.verifiers.files import UserFileError
from auth.verifiers.sasl_config import SaslConfigError
from policy.ruleset import PolicyError, Ruleset
from policy.usage import UsageLedger
from router.audit_log import AuditLog
from router.core.links import InLink
from router.core.router import Core
from router.core.treatments import AddressBook
from router.core.views import address_rows, find_address_row, find_link_row, link_rows, router_totals
from router.core.watch import NORMAL, Thresholds
from router.effects import Audit, CloseConnection, Effect, Log
from router.faults import fault_text
from router.gate import Gate
from router.io.allocators import allocator_rows
from router.io.frame_trace import FrameTrace
from router.io.logs import LogFileError, Logs
from router.io.management_service import ManagementService
from router.io.memory import virtual_bytes, virtual_text
from router.io.router import Router
from router.io.security import (
    Authentication,
    ProfileSource,
    SecurityError,
    TlsFiles,
    client_tunnels,
    configured_password,
    tls_settings,
)
from router.io.vhosts import ReloadError, Vhosts, compile_configured, place_of
from router.io.workers import Workers
from router.listener import ConnectionTerms, listener_of, terms_of
from router.management.agent import Agent
from router.management.config import Configuration, ConfiguredEntity
from router.management.entities import EntityStore, ManagementError
from router.management.logrules import LogSettingError, TimeStyle, rules_from, settings_of
from router.management.schema import Schema
from router.outgoing import Connector

_FAMILY: Final = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}
AUDIT_DRAIN_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class _Rows:
    """A management provider around a function."""

    make: Callable[[], Iterator[Mapping[str, Any]]]

    def rows(self) -> Iterator[Mapping[str, Any]]:
        return self.make()


@dataclass(frozen=True, slots=True)
class _PagedRows:
    """A management provider around a function of the number of the first row, and one of an identity."""

    page: Callable[[int], Iterator[Mapping[str, Any]]]
    find: Callable[[str], Mapping[str, Any] | None]

    def rows(self) -> Iterator[Mapping[str, Any]]:
        return self.page(0)


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
    ) -> None:
        self._thresholds = thresholds
        self.schema = schema
        self.configuration = configuration
        self.logs = logs
        self.version = version
        self.attributes: Mapping[str, Any] = configuration.router
        self.audit: AuditLog | None = None
        self.trace = FrameTrace(logs.write_frame)
        self.profiles: dict[str, ProfileSource] = {}
        self.plugins: set[str] = set()  # names of authServicePlugins
        self.tls_files: dict[str, TlsFiles] = {}  # by name of the listener or connector
        self.authentication: Authentication | None = None
        self.addresses = AddressBook(str(self.attributes["defaultDistribution"]))
        self.stopping = asyncio.Event()
        self.failure: str | None = None  # why it stops by itself
        self._opening: set[asyncio.Task[None]] = set()
        self._reloading: asyncio.Task[None] | None = None
        self._wants_reload = False

    # Effects

    def emit(self, effect: Effect) -> None:
        """Carry out what the control plane asks for."""
        match effect:
            case Log():
                self.logs.write_effect(effect)
            case Audit(event=event):
                if self.audit is not None:
                    self.audit.record(event)
            case CloseConnection(connection_id=connection_id):
                self.router.close_connection(connection_id)

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
            self.authentication = Authentication.load(self.attributes)
        except (SaslConfigError, UserFileError) as error:
            raise StartError(f"Configuration: {error}") from None
        workers = Workers(self.authentication.verify, lambda text: self._log("AUTHSERVICE", "error", text))
        gate = Gate(self._compile_policy(), UsageLedger(), self.emit)
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
        self._trace_as_logged()
        self._log("ROUTER_CORE", "info", f"Router Core thread running. 0/{router_id}")
        self._log("AGENT", "info", "Activating management agent on $_management_internal")
        self._log_policy(gate.ruleset)
        self._start_management()
        for name in gate.ruleset.vhosts:
            self._log("POLICY", "info", f"Created policy rules for vhost {name}")

    def _start_management(self) -> None:
        """The entity store takes in the file through the handlers that serve management requests too."""
        store = self.store = EntityStore(self.schema, self.emit, self.core.next_identity)
        store.on_create("sslProfile", self.create_ssl_profile)
        store.on_delete("sslProfile", self.delete_ssl_profile)
        store.on_create("authServicePlugin", self.create_plugin)
        store.on_delete("authServicePlugin", self.delete_plugin)
        store.on_create("address", self.create_address)
        store.on_delete("address", self.addresses.remove)
        store.on_create("connector", self.create_connector)
        store.on_delete("connector", self.delete_connector)
        # The vhosts and listeners of the file come as a whole: compiled once, opened last.
        store.on_create("vhost", lambda _attributes: None)
        store.on_create("listener", lambda _attributes: None)
        for entity in self.configuration.entities:
            try:
                store.load((entity,))
            except ManagementError as error:
                raise StartError(f"{_start_text(error)}{_place(entity)}") from None
        self.vhosts = Vhosts(self.configuration, self.schema, store, self.router.gate, self.emit)
        store.on_create("vhost", self.vhosts.create)
        store.on_update("vhost", self.vhosts.update)
        store.on_delete("vhost", self.vhosts.delete)
        store.on_create("listener", self.create_listener)
        store.on_delete("listener", self.delete_listener)
        store.on_update("log", self.update_log)
        agent = Agent(
            self.schema,
            store,
            {
                "router": _Rows(self.router_rows),
                "connection": _PagedRows(self.router.connection_rows, self.router.find_connection_row),
                "router.link": _PagedRows(partial(link_rows, self.core), partial(find_link_row, self.core)),
                "router.address": _PagedRows(partial(address_rows, self.core), partial(find_address_row, self.core)),
                "connector": _Rows(self.connector_rows),
                "policy": _Rows(self.policy_rows),
                "vhostStats": _Rows(self.vhost_stats_rows),
                "logStats": _Rows(self.logs.ring.rows),
                "allocator": _Rows(self.allocator_rows),
            },
            self.emit,
            log_entries=self.logs.ring.entries,
            update_connection=self.update_connection,
            is_debug_enabled=lambda: self.logs.rules.is_enabled("AGENT", "debug"),
        )
        ManagementService(
            self.core,
            agent,
            self.may_update_admin_status,
            self.may_reply,
            self.emit,
            self.router.work.finish,
            self.vhosts.names,
        )
        # Edge routers beat here; there are none yet, but operators' scripts count the address.
        self.core.subscribe("_$qd.edge_heartbeat", lambda _payload, _link: None)

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
        except (LogSettingError, LogFileError) as error:
            raise StartError(f"Configuration: {error}") from None

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
            ruleset = compile_configured(self.configuration)
        except PolicyError as error:
            raise StartError(f"Python: PolicyError: {error}{place_of(error)}") from None
        for warning in ruleset.warnings:
            self._log("POLICY", "warning", warning)
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
                ready.append((entity, self._listener(entity.attributes)))
            except ManagementError as error:
                raise StartError(f"{_start_text(error)}{_place(entity)}") from None
        threads = self.attributes["workerThreads"]
        self._log("SERVER", "notice", f"Operational, {threads} Threads Running (process ID {os.getpid()})")
        self._log("SERVER", "notice", f"Process VmSize {virtual_text()}")
        has_connector = bool(self.configuration.of_type("connector"))
        for number, (entity, listener) in enumerate(ready):
            try:
                await self.router.open_port(listener, **_family_of(entity.attributes))
            except OSError as error:
                self._log_listener_error(listener.place, error)
                if number == 0 and not has_connector:
                    self._log("SERVER", "critical", f"Shutting down, required listener failed {listener.place}")
                    self.failure = f"required listener failed {listener.place}: {error.strerror or error}"
                    self.stopping.set()

    def _log_listener_error(self, place: str, error: OSError) -> None:
        text = error.strerror or str(error)
        self._log("SERVER", "error", f"Listener error on {place}: {text} (proton:io)")

    # Entities

    def create_ssl_profile(self, attributes: Mapping[str, Any]) -> None:
        """Errors: ManagementError."""
        try:
            self.profiles[attributes["name"]] = ProfileSource(attributes, self.emit)
        except SecurityError as error:
            raise ManagementError(500, f"CError: {error}") from None
        self._log("CONN_MGR", "info", f"Created SSL Profile with name {attributes['name']} ")

    def delete_ssl_profile(self, attributes: Mapping[str, Any]) -> None:
        """Listeners keep the copy they took (§8.3)."""
        self.profiles.pop(attributes["name"], None)

    def create_plugin(self, attributes: Mapping[str, Any]) -> None:
        """Remember the name: listeners that refer to it are refused, so that nobody is let in unasked."""
        if attributes.get("authService"):
            text = "Attribute authService of entity authServicePlugin has been deprecated. Use host and port instead."
            self._log("CONN_MGR", "warning", text)
        self.plugins.add(attributes["name"])
        self._log("CONN_MGR", "info", f"Created SASL plugin config with name {attributes['name']}")

    def delete_plugin(self, attributes: Mapping[str, Any]) -> None:
        self.plugins.discard(attributes["name"])

    def create_address(self, attributes: Mapping[str, Any]) -> None:
        self.addresses.add(attributes)

    def create_connector(self, attributes: Mapping[str, Any]) -> None:
        """Connect at once (§8.5). Errors: ManagementError; nothing is started then."""
        place = f"{attributes['host']}:{attributes['port']}"
        profile_name = attributes.get("sslProfile")
        tunnel, has_certificate = None, False
        if profile_name:
            source = self._profile(profile_name, f"connector {place}")
            files = TlsFiles.of_connector(source, verify_hostname=bool(attributes["verifyHostname"]))
            self.tls_files[attributes["name"]] = files
            tunnel = client_tunnels(files)
            has_certificate = bool(source.profile.cert_file)
        try:
            password = configured_password(attributes.get("saslPassword"), is_literal_prefix=False, emit=self.emit)
        except SecurityError as error:
            raise ManagementError(500, f"CError: {error}") from None
        words = attributes.get("saslMechanisms")
        connector = Connector(
            **terms_of(attributes),
            tunnel=tunnel,
            has_certificate=has_certificate,
            mechanisms=tuple(str(words).split()) if words else None,
            username=attributes.get("saslUsername"),
            password=password,
        )
        self._log_configured("Connector", connector, attributes.get("protocolFamily"), profile_name)
        self.router.add_connector(connector)

    def delete_connector(self, attributes: Mapping[str, Any]) -> None:
        self.router.remove_connector(attributes["name"])
        self.tls_files.pop(attributes["name"], None)

    def _profile(self, name: str, whose: str) -> ProfileSource:
        found = self.profiles.get(name)
        if found is None:
            known = ", ".join(sorted(self.profiles)) or "none is defined"
            raise ManagementError(400, f"{whose}: no sslProfile named '{name}' (known: {known})")
        return found

    def _log_configured(self, kind: str, terms: ConnectionTerms, family: str | None, profile: str | None) -> None:
        suffix = f", sslProfile={profile}" if profile else ""
        text = f"Configured {kind}: {terms.place} proto={family or 'any'}, role={terms.role}{suffix}"
        self._log("CONN_MGR", "info", text)

    def _listener(self, attributes: Mapping[str, Any]) -> Any:
        assert self.authentication is not None
        place = f"{attributes['host']}:{attributes['port']}"
        if (plugin := attributes.get("saslPlugin")) and plugin not in self.plugins:
            raise ManagementError(500, f"CError: Run Time: Cannot find sasl plugin {plugin}")
        if plugin:
            raise ManagementError(400, f"listener {place}: saslPlugin is not supported by this version")
        if attributes.get("http") or attributes.get("httpRootDir"):
            raise ManagementError(400, f"listener {place}: http listeners are not supported by this version")
        profile_name = attributes.get("sslProfile")
        tls = None
        if profile_name:
            source = self._profile(profile_name, f"listener {place}")
            files = TlsFiles.of_listener(source, sasl_mechanisms=attributes.get("saslMechanisms"))
            self.tls_files[attributes["name"]] = files
            tls = tls_settings(files, self.emit)
        if attributes.get("trustedCertsFile"):
            self._log("CONN_MGR", "warning", "Configuration listener attribute 'trustedCertsFile' is not used. "
                                             "Specify sslProfile caCertFile instead.")  # fmt: skip
        try:
            mechanisms = self.authentication.mechanisms(attributes)
        except SaslConfigError as error:
            raise ManagementError(500, f"listener {place}: {error}") from None
        listener = listener_of(attributes, tls=tls, mechanisms=mechanisms)
        self._log_configured("Listener", listener, attributes.get("socketAddressFamily"), profile_name)
        return listener

    def create_listener(self, attributes: Mapping[str, Any]) -> None:
        """Listen at once; the request succeeds even if the port cannot be bound (§8.4)."""
        listener = self._listener(attributes)
        opening = self.router.open_port(listener, **_family_of(attributes))

        async def open_it() -> None:
            try:
                await opening
            except OSError as error:
                self._log_listener_error(listener.place, error)

        task = asyncio.get_running_loop().create_task(open_it())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def delete_listener(self, attributes: Mapping[str, Any]) -> None:
        self.router.close_port(attributes["name"])
        self.tls_files.pop(attributes["name"], None)

    def update_log(self, _before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        try:
            self.logs.configure(after["module"], settings_of(after))
        except (LogSettingError, LogFileError) as error:
            raise ManagementError(500, f"CError: Configuration: {error}") from None
        self._trace_as_logged()

    def _trace_as_logged(self) -> None:
        self.trace.set_level(self.logs.rules.is_enabled("PROTOCOL", "trace"), list(self.router.connections.values()))

    # Reload

    def reload(self) -> None:
        """SIGHUP: log files, certificates and policyDir are read anew; what cannot be used changes nothing."""
        self._wants_reload = True
        if self._reloading is None:
            self._reloading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        try:
            while self._wants_reload:  # a signal that comes while we read means: once more
                self._wants_reload = False
                self.logs.reopen()
                self._reload_certificates()
                await self._reload_policy_dir()
                self._log("SERVER", "notice", "Reload on SIGHUP finished")
        except Exception as error:  # our own fault: the router goes on with what it has
            self._log("ERROR", "error", f"Reload on SIGHUP: {fault_text(error)}")
        finally:
            self._reloading = None

    def _reload_certificates(self) -> None:
        for name, files in self.tls_files.items():
            try:
                files.reload()
            except (TlsProfileError, SecurityError) as error:
                text = f"Reload of sslProfile {files.profile.name} for {name} failed, what it had stays in use: {error}"
                self._log("CONN_MGR", "error", text)

    async def _reload_policy_dir(self) -> None:
        if not self.vhosts.has_folder:
            return
        try:
            done = await self.vhosts.reload()
        except ReloadError as error:
            self._log("POLICY", "error", f"Reload of policyDir failed, the rules in force stay: {error}")
            return
        text = f"Reload of policyDir: {done.created} vhosts created, {done.updated} updated, {done.deleted} deleted"
        self._log("POLICY", "info", text)

    # Views

    @property
    def core(self) -> Core:
        return self.router.core

    def may_update_admin_status(self, connection_id: int) -> bool:
        connection = self.router.connections.get(connection_id)
        settings = connection.gate.settings if connection is not None else None
        return settings is None or settings.allow_admin_status_update

    def may_reply(self, link: InLink, reply_to: str) -> bool:
        """A requester may have replies sent to where it receives itself, or may send anyway.

        Otherwise whoever may use $management could make the router write to any address in its own name.
        """
        connection = self.router.connections.get(link.attachment.connection_id)
        if connection is None or connection.gate.may_send_to(reply_to):
            return True
        address = self.core.table.find(reply_to)
        if address is not None and any(out.address is address for out in link.attachment.out_links):
            return True
        self._log("POLICY", "info", f"[C{connection.connection_id}] DENY management reply to '{reply_to}'")
        event = {
            **connection.gate.facts(),
            "decision": "deny",
            "stage": "management",
            "reason": "forbidden_operation",
            "address": reply_to,
            "detail": "reply-to is neither received by the requester nor among its targets",
        }
        self.emit(Audit(event=event))
        return False

    def router_rows(self) -> Iterator[Mapping[str, Any]]:
        yield {
            **self.attributes,
            "name": self.attributes["id"],
            "identity": "1",
            "version": self.version,
            "hostName": platform.node(),
            "metadata": self.attributes.get("metadata"),
            **router_totals(self.core),
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
        yield {**self.configuration.policy, **self.router.gate.ledger.policy_counters()}

    def vhost_stats_rows(self) -> Iterator[Mapping[str, Any]]:
        ledger = self.router.gate.ledger
        for name in ledger.vhost_names():
            yield {"name": f"vhostStats/{name}", "identity": f"vhostStats/{name}", **ledger.vhost_stats(name)}

    # The end

    async def stop(self) -> None:
        """Close everything; audit events that are still queued are written first."""
        await self.router.stop()
        self._log("SERVER", "notice", "Shut Down")
        if self.audit is not None and not await asyncio.to_thread(self.audit.close, AUDIT_DRAIN_S):
            self._log("POLICY", "critical", f"{self.audit.lost} audit events could not be written")


def _start_text(error: ManagementError) -> str:
    """A failed CREATE as start-up prints it: `CError` is the management protocol's word (§2.3)."""
    if error.description.startswith("CError: "):
        return error.description.removeprefix("CError: ")
    return f"Python: {error.description}" if error.status == 500 else f"Configuration: {error.description}"


def _place(entity: ConfiguredEntity) -> str:
    return f" ({entity.file}:{entity.line})" if entity.line is not None else ""


def _family_of(attributes: Mapping[str, Any]) -> dict[str, socket.AddressFamily]:
    family = _FAMILY.get(str(attributes.get("socketAddressFamily")))
    return {"family": family} if family is not None else {}
