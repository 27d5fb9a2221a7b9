"""Read the settings about pods once, and name every mistake at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from penstock.domain.quantities import parse_cpus, parse_duration
from penstock.engines.shared.minder import PEER_PATIENCE
from penstock.errors import Problem, SettingsError, StartRefused
from penstock.settings import Settings

LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
OBJECT_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?\Z")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
LARGEST_ID = 2**31 - 1


@dataclass(frozen=True)
class PodSettings:
    image: str
    restricted: bool
    default_cpus_milli: int
    counts_memory: bool
    """A quota counts memory, and refuses pods that do not ask for any."""
    peer_patience: int
    """Seconds a node waits to see the others."""
    node_selector: dict[str, str]
    tolerations: tuple[dict[str, str], ...]
    runtime_class: str
    pull_secrets: tuple[str, ...]
    user: int | None
    group: int | None
    fs_group: int | None


class _SettingsReader:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def wrong(self, setting: str, message: str, hint: str) -> None:
        self.problems.append(Problem(message, field=setting, hint=hint))

    def number(self, setting: str, text: str) -> int | None:
        if not text:
            return None
        if text.isdecimal() and int(text) <= LARGEST_ID:
            return int(text)
        self.wrong(setting, f"'{text}' is not a uid or gid", "for example 1000")
        return None

    def toleration(self, text: str) -> dict[str, str]:
        """Parse `key`, `key=value`, `key:NoSchedule` or `key=value:NoSchedule`."""
        rest, _, effect = text.partition(":")
        key, equals, value = rest.partition("=")
        if (effect and effect not in EFFECTS) or not LABEL_KEY.match(key) or not LABEL_VALUE.match(value):
            hint = f"for example nvidia.com/gpu:NoSchedule; effects are {', '.join(EFFECTS)}"
            self.wrong("kubernetes_tolerations", f"'{text}' is not a toleration", hint)
        made = {"key": key, "operator": "Equal" if equals else "Exists"}
        return made | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {})

    def labels(self, setting: str, table: dict[str, str]) -> dict[str, str]:
        for key, value in table.items():
            if not LABEL_KEY.match(key) or not LABEL_VALUE.match(value):
                self.wrong(setting, f"'{key} = {value}' is not a label", 'for example pool = "gpu"')
        return table

    def names(self, setting: str, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not OBJECT_NAME.match(name):
                self.wrong(setting, f"'{name}' is not the name of an object in Kubernetes", "for example registry-key")
        return names


def read_pod_settings(settings: Settings) -> PodSettings:
    ruled = settings.kubernetes_quota or settings.kubernetes_network != "open"
    if settings.kubernetes_namespaces == "one" and ruled:
        raise StartRefused(
            "kubernetes_quota and kubernetes_network are for namespaces that Penstock makes.",
            hint='Set kubernetes_namespaces to "user" or "group", or make them in your own namespace with kubectl.',
        )
    reading = _SettingsReader()
    user, _, group = settings.kubernetes_run_as.partition(":")
    made = PodSettings(
        image=settings.kubernetes_image,
        restricted=settings.kubernetes_pod_security == "restricted",
        default_cpus_milli=parse_cpus(settings.default_cpus),
        counts_memory=not settings.kubernetes_quota.keys().isdisjoint(("memory", "requests.memory")),
        peer_patience=parse_duration(settings.placement_timeout) + PEER_PATIENCE,
        node_selector=reading.labels("kubernetes_node_selector", settings.kubernetes_node_selector),
        tolerations=tuple(reading.toleration(text) for text in settings.kubernetes_tolerations),
        runtime_class=settings.kubernetes_runtime_class,
        pull_secrets=reading.names("kubernetes_pull_secrets", settings.kubernetes_pull_secrets),
        user=reading.number("kubernetes_run_as", user),
        group=reading.number("kubernetes_run_as", group),
        fs_group=reading.number("kubernetes_fs_group", settings.kubernetes_fs_group),
    )
    if made.runtime_class:
        reading.names("kubernetes_runtime_class", (made.runtime_class,))
    if made.restricted and made.user == 0:
        reading.wrong("kubernetes_run_as", "root is not allowed with kubernetes_pod_security = restricted", "1000:1000")
    if reading.problems:
        raise SettingsError("The settings are wrong.", problems=reading.problems)
    return made


def build_pod_security(made: PodSettings) -> dict[str, Any]:
    """Build the pod's security context: no more of the system than a program needs, and the accounts an admin chose."""
    chosen = {"runAsUser": made.user, "runAsGroup": made.group, "fsGroup": made.fs_group}
    context: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    context |= {key: value for key, value in chosen.items() if value is not None}
    if made.fs_group is not None:
        context["fsGroupChangePolicy"] = "OnRootMismatch"
    if made.restricted:
        context["runAsNonRoot"] = True
    return context
