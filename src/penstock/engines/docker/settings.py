"""Read the settings about containers, and name every mistake at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.domain.quantities import parse_bytes, parse_cpus, parse_duration
from penstock.errors import Problem, SettingsError
from penstock.settings import Settings

INSTALLATION = re.compile(r"[a-z][a-z0-9-]{0,23}\Z")
RUN_AS = re.compile(r"(?:\d{1,9}(?::\d{1,9})?)?\Z")


@dataclass(frozen=True)
class ContainerSettings:
    installation: str
    image: str
    helper_image: str
    registry_config: str
    run_as: str
    closed: bool
    default_cpus_milli: int
    processes: int
    log_limit: int
    disk_scan: int
    pull_patience: int
    launch_attempts: int
    launch_pause: int


def read_settings(settings: Settings) -> ContainerSettings:
    problems = []
    if not INSTALLATION.match(settings.docker_installation):
        said = f"'{settings.docker_installation}' is not a name: lower-case letters, digits and '-', 24 at most"
        problems.append(Problem(said, field="docker_installation", hint="for example penstock"))
    if not RUN_AS.match(settings.docker_run_as):
        said = f"'{settings.docker_run_as}' is not a uid or uid:gid"
        problems.append(Problem(said, field="docker_run_as", hint="for example 1000:1000"))
    if problems:
        raise SettingsError("The settings are wrong.", problems=problems)
    return ContainerSettings(
        installation=settings.docker_installation,
        image=settings.docker_image,
        helper_image=settings.docker_helper_image,
        registry_config=settings.docker_registry_config,
        run_as=settings.docker_run_as,
        closed=settings.docker_network == "closed",
        default_cpus_milli=parse_cpus(settings.default_cpus),
        processes=settings.max_processes,
        log_limit=parse_bytes(settings.log_limit),
        disk_scan=parse_duration(settings.disk_scan),
        pull_patience=parse_duration(settings.pull_patience),
        launch_attempts=settings.launch_attempts,
        launch_pause=parse_duration(settings.launch_pause),
    )
