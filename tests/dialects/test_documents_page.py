"""docs/documents.md names every key of every kind, and its examples are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.dialects.document.config import CONFIG, IMAGE_SHAPE, NETWORK
from penstock.dialects.document.node import GPU, NODE
from penstock.dialects.document.people import DEFAULTS, GROUP, KINDS, LIMITS, MEMBERSHIP, USER, VERBS
from penstock.dialects.document.volumes import LOCAL, NFS, SCRATCHES, STORAGE, VOLUME, VOLUMES
from penstock.dialects.document.workload import CPU, PLUGINS, RESOURCES, SELECTORS, WORKLOAD
from penstock.dialects.document.workload import GPU as GPU_SELECTOR
from penstock.dialects.documents import read_documents
from penstock.domain.kinds import APPLIED

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "documents.md").read_text()
PARTS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
SHAPES = {
    "Workload": (WORKLOAD, SELECTORS, GPU_SELECTOR, CPU, CONFIG, IMAGE_SHAPE, NETWORK, PLUGINS, RESOURCES, VOLUMES),
    "Volume": (VOLUME,),
    "Storage": (STORAGE, NFS, LOCAL),
    "Node": (NODE, GPU),
    "Group": (GROUP, LIMITS, DEFAULTS),
    "User": (USER, MEMBERSHIP),
}
WORKLOADS_OTHERS = sorted(SCRATCHES.readers)


def test_every_kind_has_its_part():
    assert set(PARTS) == set(APPLIED)


@pytest.mark.parametrize(
    ("kind", "key"), sorted({(kind, key) for kind, shapes in SHAPES.items() for each in shapes for key in each.readers})
)
def test_every_key_is_named_in_its_kinds_part(kind, key):
    assert re.search(rf"[`.{{ ]{key}[`.,:\[ ]", PARTS[kind])


@pytest.mark.parametrize("key", WORKLOADS_OTHERS)
def test_scratch_is_named_too(key):
    assert f"`{key}`" in PARTS["Workload"]


@pytest.mark.parametrize("word", [*KINDS, *VERBS])
def test_every_word_of_a_policy_is_named(word):
    assert f"`{word}`" in PARTS["User"]


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_are_documents(text):
    assert read_documents(text, "example.yaml")
