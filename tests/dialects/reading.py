"""What a task reads as, in the few words the tests of it use."""

from __future__ import annotations

import pytest

from penstock.dialects.task.read import read_task
from penstock.domain.workloads import Spec
from penstock.errors import Invalid


def spec_of(text: str, **given_by_flags) -> Spec:
    return read_task(text, "t.yaml", **given_by_flags).spec


def problems_of(text: str, **given_by_flags) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read_task(text, "t.yaml", **given_by_flags)
    return [str(problem) for problem in caught.value.problems]


def notices_of(text: str) -> tuple[str, ...]:
    return read_task(text, "t.yaml").notices


def resources_of(**said: str) -> str:
    return "run: a\nresources:\n" + "".join(f"  {key}: {value}\n" for key, value in said.items())
