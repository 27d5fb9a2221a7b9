"""The engines there are, where each is found, and what its work has around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EngineName = Literal["local", "docker", "kubernetes"]


@dataclass(frozen=True)
class EngineEntry:
    """One line of the table of engines. What an engine can do beyond this is a protocol of `engines.base`."""

    path: str
    """The class, as `module:name`; imported when a server starts with it."""
    install: str = "."
    """What pip installs in a checkout to have all it imports."""
    here: bool = False
    """Work runs on the server's own machine: under its accounts, with its files, as its only node."""


ENGINES: dict[EngineName, EngineEntry] = {
    "local": EngineEntry("penstock.engines.local.engine:LocalEngine", here=True),
    "docker": EngineEntry("penstock.engines.docker.engine:DockerEngine"),
    "kubernetes": EngineEntry("penstock.engines.kubernetes.engine:KubernetesEngine", install=".[kubernetes]"),
}
