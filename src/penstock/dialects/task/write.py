"""A Spec to the shortest task YAML that reads back to the same."""

from __future__ import annotations

from typing import Any

import yaml

from penstock.domain.quantities import BINARY, show_cpus
from penstock.domain.workloads import Resources, Spec

DAY = 86_400


class _Dumper(yaml.CSafeDumper):
    """Texts of several lines as a block, the way people write scripts."""


def _text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def write_task(spec: Spec) -> str:
    said = {
        "name": spec.name,
        "num_nodes": spec.nodes if spec.nodes != 1 else None,
        "workdir": spec.workdir,
        "resources": _resources(spec.resources),
        "envs": spec.envs,
        "volumes": {mount.path: f"{mount.volume}{':ro' * mount.read_only}" for mount in spec.mounts},
        "setup": spec.setup,
        "run": spec.run,
        "max_duration": spec.max_duration and _duration(spec.max_duration),
    }
    return yaml.dump(_only_said(said), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)


def _resources(wanted: Resources) -> dict[str, Any]:
    return _only_said(
        {
            "cpus": wanted.cpus_milli and _cpus(wanted.cpus_milli),
            "memory": wanted.memory_bytes and _memory(wanted.memory_bytes),
            "accelerators": _accelerators(wanted),
            "image_id": wanted.image,
        }
    )


def _only_said(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != {}}


def _cpus(milli: int) -> int | str:
    """A number where it is whole, else `1500m`, which needs no quotes."""
    return milli // 1000 if milli % 1000 == 0 else f"{milli}m"


def _memory(amount: int) -> str:
    for unit, factor in reversed(BINARY.items()):
        if amount % factor == 0:
            return f"{amount // factor}{unit}"
    return f"{show_cpus(amount)}k"


def _accelerators(wanted: Resources) -> int | str | list[str] | None:
    wishes = [f"{product}:{wanted.gpus}" for product in wanted.gpu_products]
    if len(wishes) > 1:
        return wishes
    return wishes[0] if wishes else wanted.gpus or None


def _duration(seconds: int) -> str:
    parts = (seconds // DAY, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")
    return "".join(f"{number}{unit}" for number, unit in parts if number)
