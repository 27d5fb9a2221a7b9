"""What an autoscaler can bring that no node is now, as `kubernetes_autoscaler` says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects.pods import Pod
from penstock.engines.kubernetes.nodes.inventory import requests
from penstock.engines.kubernetes.settings import LABEL_VALUE
from penstock.engines.kubernetes.waiting.shortage import short, wanted_products
from penstock.errors import Problem, SettingsError
from penstock.settings import Settings

PLAIN, NOTHING = "cpu", "none"
ANY_NUMBER = 1 << 16


@dataclass(frozen=True)
class Autoscaler:
    known: bool = False
    """The admin has said what can come; otherwise anything might."""
    gpus: Mapping[str, int] | None = None
    """By product, as nodes call it, how many of them one node has."""
    plain: bool = False
    """Nodes without GPUs can come."""

    @property
    def products(self) -> tuple[str, ...]:
        return tuple(self.gpus or ())

    def brings(self, pod: Pod) -> str | None:
        """What it can bring for such a pod, in a few words."""
        count, wanted = int(requests(pod).get(names.GPU, 0)), wanted_products(pod)
        if not count:
            return "more nodes" if self.plain else None
        return " or ".join(map(short, self._with(count, wanted))) or None

    def _with(self, count: int, wanted: Collection[str]) -> list[str]:
        found = (self.gpus or {}).items()
        return [product for product, each in found if each >= count and (not wanted or product in wanted)]


def read_autoscaler(settings: Settings) -> Autoscaler:
    said = settings.kubernetes_autoscaler
    gpus: dict[str, int] = {}
    problems = []
    for text in said:
        product, colon, count = text.partition(":")
        if text in (PLAIN, NOTHING):
            continue
        if not product or not LABEL_VALUE.match(product) or (colon and not (count.isdecimal() and int(count))):
            hint = f"for example NVIDIA-H100-80GB-HBM3:8, or {PLAIN}, or {NOTHING}"
            problems.append(Problem(f"'{text}' is no GPU product", field="kubernetes_autoscaler", hint=hint))
        else:
            gpus[product] = int(count) if colon else ANY_NUMBER
    if NOTHING in said and len(said) > 1:
        problem = Problem(f"'{NOTHING}' stands beside something", field="kubernetes_autoscaler", hint="leave one out")
        problems.append(problem)
    if problems:
        raise SettingsError("The settings are wrong.", problems=problems)
    return Autoscaler(bool(said), gpus, PLAIN in said)
