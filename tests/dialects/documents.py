"""Small documents of PWM's kinds, and what they read as."""

from __future__ import annotations

import pytest

from penstock.dialects.document.types import Noun, NounDocument, WorkloadDocument
from penstock.dialects.documents import read_documents
from penstock.domain.workloads import Spec
from penstock.errors import Invalid

WORKLOAD = """\
apiVersion: v1
kind: Workload
metadata: {name: small}
spec:
  driver: pwm.docker
  image: {image: ubuntu}
"""


def under_workload(*lines: str) -> str:
    """A Workload with more lines in its spec."""
    return WORKLOAD + "".join(f"  {line}\n" for line in lines)


def a(kind: str, spec: str, name: str = "one", group: str | None = None) -> str:
    about = f"{{name: {name}, group: {group}}}" if group else f"{{name: {name}}}"
    return f"apiVersion: v1\nkind: {kind}\nmetadata: {about}\nspec: {spec}\n"


def workload_of(text: str) -> WorkloadDocument:
    (document,) = read_documents(text, "d.yaml")
    assert isinstance(document, WorkloadDocument)
    return document


def spec_of(text: str) -> Spec:
    return workload_of(text).task.spec


def noun_document(text: str) -> NounDocument:
    (document,) = read_documents(text, "d.yaml")
    assert isinstance(document, NounDocument)
    return document


def noun_of(text: str) -> Noun:
    return noun_document(text).noun


def problems_of(text: str) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read_documents(text, "d.yaml")
    return [str(problem) for problem in caught.value.problems]


def problem_of(text: str) -> str:
    (problem,) = problems_of(text)
    return problem
