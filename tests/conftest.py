"""What every folder of tests shares: the list of what was not run, a place to work in, a real server."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings

from tests.__main__ import report_of
from tests.hosts.fixtures import gpu_hosts, hosts, own_hosts, registry
from tests.rig.fixtures import end_unused, own_rig, rig, rig_namespace
from tests.running import RunningServer, start_server

__all__ = ["gpu_hosts", "hosts", "own_hosts", "own_rig", "registry", "rig", "rig_namespace"]

CLUSTERS = {"gpu_hosts", "hosts", "own_hosts", "own_rig", "rig"}
"""Fixtures of tests that need several machines."""

LONG = (
    "e2e/docker/test_load.py",
    "docker/test_engine.py",
    "kubernetes/test_engine.py",
    "e2e/kubernetes/test_documents.py",
    "docker/test_trouble.py",
    "docker/runs/test_kills.py",
    "waiting/test_holds.py",
    "e2e/kubernetes/test_kills.py",
    "waiting/test_kueue.py",
    "e2e/docker/test_states.py",
    "e2e/kubernetes/test_outages.py",
    "kubernetes/test_deploy.py",
    "logs/test_collect.py",
    "kubernetes/test_runs.py",
    "local/test_engine.py",
    "server/test_exhaustion.py",
    "server/test_without_cluster.py",
    "cli/test_restart.py",
    "server/test_recovery.py",
    "server/test_idle.py",
    "services/test_taken_over.py",
)
"""Files that take long, by the ends of their paths: begun first, or one worker is at them when others are done."""

LOG_LINES = 60
"""Of a server's log that are shown with a test that failed."""

RUN_JOBS = {"place", "server", "module_server"}
"""Fixtures of tests that start a real server and jobs on it."""


def pytest_configure(config: pytest.Config) -> None:
    """What is tested must not read the settings, profile or directories of the person who runs the tests."""
    for variable in list(os.environ):
        if variable.startswith(("PENSTOCK_", "K8S_CLI_", "XDG_")) and variable not in (
            "PENSTOCK_FUZZ",
            "PENSTOCK_KILLS",
            "PENSTOCK_SEED",
        ):
            del os.environ[variable]
    # Under nohup, or in the background of a script, these are ignored, and by all that the tests start as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # A busy machine is not a defect of what is tested.
    hypothesis_settings.register_profile("penstock", deadline=None)
    hypothesis_settings.load_profile("penstock")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a cluster: it runs apart from the rest, which the clusters would slow down."""
    for item in items:
        if CLUSTERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("cluster")
    if config.getoption("loadscopereorder", True) is False:
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: (_turn(item.path), -tests[item.path]))


def _turn(path: Path) -> int:
    return next((turn for turn, end in enumerate(LONG) if path.as_posix().endswith(f"/{end}")), len(LONG))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests are never garbage: nobody needs to look through them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """After everything else: one line for each reason why something was not run."""
    yield
    for reason, count in _not_run(terminalreporter).items():
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(f"not run: {reason} ({tests})", yellow=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[pytest.TestReport]:
    """What the servers of a failed test have logged is shown with it."""
    report: pytest.TestReport = yield
    if report.failed:
        for path in sorted(_logs_of(item)):
            lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
            report.sections.append((f"{path.name} of {path.parent}", "\n".join(lines)))
    return report


def _logs_of(item: pytest.Item) -> set[Path]:
    values = getattr(item, "funcargs", {}).values()
    places = {value if isinstance(value, Path) else getattr(value, "place", None) for value in values}
    return {log for place in places if isinstance(place, Path) for log in (place / "server.log",) if log.is_file()}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what is said of a test that failed, and at a second try of each; see `python -m tests`."""
    kept = os.environ.get("TEST_REPORTS")
    on_controller = "PYTEST_XDIST_WORKER" not in os.environ
    if kept and on_controller and (report.failed or Path(kept).name == "second"):
        path = report_of(Path(kept), report.nodeid)
        path.parent.mkdir(parents=True, exist_ok=True)
        said = [report.longreprtext, *(f"-- {title}\n{text}" for title, text in report.sections)]
        with path.open("a") as file:
            file.write(f"{report.when}: {report.outcome}\n" + "\n".join(filter(None, said)) + "\n")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where everything must run (CI=true), leaving something out is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    on_controller = not hasattr(session.config, "workerinput")
    if on_controller and os.environ.get("CI") == "true" and reporter and _not_run(reporter):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last one out, when every worker has ended."""
    if not hasattr(config, "workerinput"):
        end_unused()


def _not_run(reporter: Any) -> Counter[str]:
    reports = {(report.nodeid, _reason(report)) for report in reporter.stats.get("skipped", [])}
    return Counter(reason for _, reason in sorted(reports))


def _reason(report: Any) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


@functools.cache
def _sandbox_fault() -> str | None:
    """Why jobs cannot run on this machine."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bubblewrap is not installed: sudo apt-get install -y bubblewrap"
    namespaces = ["--unshare-pid"] if os.geteuid() == 0 else ["--unshare-user", "--unshare-pid"]
    tried = subprocess.run([bwrap, *namespaces, "--ro-bind", "/", "/", "true"], capture_output=True, text=True)
    return f"bubblewrap does not work here: {tried.stderr.strip()}" if tried.returncode else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What runs jobs needs their sandbox."""
    if RUN_JOBS.intersection(getattr(item, "fixturenames", ())) and (fault := _sandbox_fault()):
        pytest.skip(fault)


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory with a path short enough for a Unix socket, which other accounts may pass through."""
    path = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def server(place: Path) -> Iterator[RunningServer]:
    """A real server in a fresh directory, with nothing left of it or its jobs afterwards."""
    running = start_server(place)
    yield running
    running.end()


@pytest.fixture(scope="session")
def compiled_fake(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A shared library, under a name, made of a file in tests/fakes: what cannot be had here, at its narrowest edge."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is missing: apt-get install -y gcc libc6-dev")

    def compiled(source: str, name: str) -> Path:
        library = tmp_path_factory.mktemp("fakes") / name
        path = Path(__file__).parent / "fakes" / source
        subprocess.run(["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", library, path, "-ldl"], check=True)
        return library

    return compiled
