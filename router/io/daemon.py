"""qdrouterd and qdauthd: the command line, the process and its configuration. `router.control.serving` does the rest.

Sources: docs/spec/management.md §2.
"""

import gc
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from policy.configuration.refusals import refusal
from policy.configuration.schema import load_schema
from policy.printing import printable
from router.control.logs import Logs
from router.faults import fault_text
from router.io.memory import forbid_core_dumps, give_back_freed_memory
from router.io.options import AUTH_SERVICE, DEFAULT_CONFIG, ROUTER, Options, Program, UsageError, parse, usage
from router.io.process import DaemonError, Report, become, daemonize
from router.management.config import ConfigError, load_config
from schemas.versions import product_version


def _version() -> str:
    return product_version() or "0+unknown"


def main_of_auth_service() -> int:
    """Runs qdauthd. Returns the exit status."""
    return main(kind=AUTH_SERVICE)


def main(arguments: Sequence[str] | None = None, kind: Program = ROUTER) -> int:
    """Runs the daemon. Returns the exit status."""
    argv = list(sys.argv if arguments is None else arguments)
    # Attack: a client's certificate makes a library write a warning to standard error, which is the log.
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    try:
        options = parse(argv)
    except UsageError as error:
        print(error, file=sys.stderr)
        _show(usage(argv[0], kind))
        return 1
    if options.shows_version:
        _show(_version())
        return 0
    if options.shows_help:
        _show(usage(options.program, kind))
        return 0
    config_path = options.config or (kind.config if kind.is_auth_service else default_config())
    if options.checks_only:
        return check(config_path, options, kind)
    if not options.is_daemon:
        if options.user is not None:
            # Before the configuration is read, as with --daemon. Continuing as root would be silent and wrong.
            try:
                become(options.user)
            except DaemonError as error:
                return _failed(str(error), Logs(), options, report=None)
        return run(config_path, options, report=None, kind=kind)
    config_path = str(Path(config_path).absolute())
    return run(config_path, options, report=daemonize(pidfile=options.pidfile, user=options.user), kind=kind)


def default_config() -> str:
    """Returns the path of the configuration if the command line names none."""
    try:
        os.lstat(DEFAULT_CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        import policies

        return str(policies.path("default/qdrouterd.conf"))
    except OSError:  # it may exist: another file would be a surprise, and reading it shows the error
        pass
    return DEFAULT_CONFIG


def _show(text: str) -> None:
    """Prints on standard output, even if the reader has gone: `qdrouterd --help | head` is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Otherwise Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check(config_path: str, options: Options, kind: Program = ROUTER) -> int:
    """Reports what the start would report. Returns its exit status, except for ports that cannot be opened."""
    from router.control.check_logs import CheckLogs

    forbid_core_dumps()
    logs = CheckLogs()
    try:
        if options.user is not None:
            become(options.user)
        schema = load_schema()
        configuration = load_config(config_path, schema, refuse=refusal)
        from router.control.serving import StartError
        from router.control.serving import check as check_start

        try:
            check_start(configuration, schema, logs, version=_version(), is_auth_service=kind.is_auth_service)
        except StartError as error:
            return _refused(str(error))
    except DaemonError as error:
        return _refused(str(error))
    except ConfigError as error:
        for early in error.logs:
            logs.write_effect(early)
        return _refused(str(error), *error.others)
    except Exception as error:  # as in `run`
        return _refused(f"Python: {fault_text(error)}")
    _show(f"{config_path}: the router would start")
    return 0


def _refused(*texts: str) -> int:
    for text in texts:
        print(f"error: {printable(text)}", file=sys.stderr)
    return 1


def run(config_path: str, options: Options, report: Report | None, kind: Program = ROUTER) -> int:
    """Loads the configuration and serves until stopped. Returns the exit status.

    report  from `daemonize`; None in the foreground
    """
    # The objects that loading makes stay. `serve` collects once when loading is done, and then enables collection
    # again.
    gc.disable()
    give_back_freed_memory()
    forbid_core_dumps()
    logs = Logs()
    read_at_ns = time.time_ns()
    if options.config is None and config_path not in (DEFAULT_CONFIG, kind.config):
        logs.write("SERVER", "notice", f"There is no {DEFAULT_CONFIG}: {config_path} is used")
    try:
        schema = load_schema()
        configuration = load_config(config_path, schema, refuse=refusal)
        # Not earlier: most failing starts fail above, and need not wait until the whole router is loaded.
        from router.control.serving import StartError, serve

        try:
            return serve(
                configuration,
                schema,
                logs,
                version=_version(),
                has_test_hooks=options.has_test_hooks,
                read_at_ns=read_at_ns,
                report=report,
                is_auth_service=kind.is_auth_service,
            )
        except StartError as error:
            return _failed(str(error), logs, options, report)
    except ConfigError as error:
        for early in error.logs:
            logs.write_effect(early)
        return _failed(str(error), logs, options, report)
    except Exception as error:  # our own fault; its text may contain a secret of the configuration
        return _failed(f"Python: {fault_text(error)}", logs, options, report)
    finally:
        gc.enable()


def _failed(text: str, logs: Logs, options: Options, report: Report | None) -> int:
    """Writes the lines of §2.3, or one line to the launching process."""
    logs.write("MAIN", "critical", f"Router start-up failed: {text}")
    if report is not None:
        report(text)
    else:
        print(f"{options.program}: {text}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
