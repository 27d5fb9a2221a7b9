"""docs/tasks.md names every key and every field there is, and its examples are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.dialects.manifest.container import CONTAINER
from penstock.dialects.manifest.job import JOB
from penstock.dialects.manifest.pod import POD
from penstock.dialects.manifest.volumes import EMPTY_DIR, PVC
from penstock.dialects.task import keys
from penstock.dialects.task.read import read_task

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "tasks.md").read_text()
TASK, MANIFESTS = PAGE.split("## Kubernetes manifests")
FIELDS = sorted({name for shape in (POD, CONTAINER, JOB, PVC, EMPTY_DIR) for name in shape.readers})
SOMEWHERE_ELSE = {"name", "template", "containers", "volumeMounts", "affinity"}


@pytest.mark.parametrize("key", [*keys.TOP_LEVEL, *keys.RESOURCES])
def test_every_key_has_a_line(key):
    assert f"| `{key}` |" in TASK or f"\nUnder `{key}`" in TASK


def test_every_line_is_a_key():
    lines = set(re.findall(r"^\| `([a-z_]+)` \|", TASK, re.MULTILINE))
    assert lines <= {*keys.TOP_LEVEL, *keys.RESOURCES}


@pytest.mark.parametrize("field", [field for field in FIELDS if field not in SOMEWHERE_ELSE])
def test_every_field_of_a_manifest_that_is_carried_is_named(field):
    assert field in MANIFESTS


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", TASK, re.DOTALL))
def test_the_examples_are_tasks(text):
    assert read_task(text, "example.yaml").notices == ()
