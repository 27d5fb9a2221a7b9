"""One workload in three ways of writing: there and back again, and what the other way has no word for."""

from __future__ import annotations

import pytest

from penstock.dialects.convert import ConvertTarget, convert
from penstock.dialects.task.read import read_task
from penstock.errors import Invalid
from tests.dialects.documents import a, spec_of, under_workload
from tests.e2e.pwm import CPU_TEST, DATASET, FIRST_TEST, TENSORFLOW, USER_FILE

EVERYTHING = """\
name: all-of-it
after: [prepare, abcd2345]
queue: gpu-queue
workdir: /data
resources:
  cpus: 4
  exclusive_cpus: true
  memory: 8Gi
  disk_size: 100Gi
  accelerators:
  - A10:2
  - Quadro RTX 6000:2
  image_id: registry.lab:5000/torch:2
  requests: {memory: 4Gi}
selectors:
  node: gpu01
  cpu_product: Xeon
  labels: {rack: a}
  spread: true
labels:
  team: vision
envs:
  EPOCHS: '10'
volumes:
  /home: {name: home, storage: nfs01}
  /sets: {name: datasets, group: pwm.resource, sub_path: images, read_only: true}
  /out: results:ro
  /scratch: {size: 10Gi}
  /ram: {size: 1Gi, medium: memory}
run: [python, train.py, --name, a b]
terminal: true
ports: [8888, 53/udp]
max_duration: 1d2h
stop_grace: 0s
retries: 3
requeue: 2
ttl: 1h
priority: 10
idle_timeout: 30m
notify:
  telegram:12345: [RUNNING, EXITED]
  https://example.com/hook: [CRASHED]
"""
SCRIPT = """\
name: in-bash
num_nodes: 2
workdir: .
setup: |
  pip install -r requirements.txt
run: |
  # a comment of the script
  echo "$NODE_RANK"
restart: always
"""
SWEEP = "name: sweep\narray: {count: 10, parallelism: 2}\nrun: echo $JOB_COMPLETION_INDEX\nretries: unlimited\n"


@pytest.mark.parametrize("text", [FIRST_TEST, CPU_TEST, TENSORFLOW])
def test_every_workload_of_document_003_comes_back_from_a_task_as_it_was(text):
    task = convert(text, "d.yaml", to=ConvertTarget.task)
    back = convert(task, "t.yaml", to=ConvertTarget.document)
    assert spec_of(back) == spec_of(text)
    assert convert(back, "d.yaml", to=ConvertTarget.task) == task


@pytest.mark.parametrize("task", [EVERYTHING, SCRIPT, SWEEP])
def test_a_task_comes_back_from_a_document_letter_for_letter(task):
    document = convert(task, "t.yaml", to=ConvertTarget.document)
    assert spec_of(document) == read_task(task, "t.yaml").spec
    assert convert(document, "d.yaml", to=ConvertTarget.task) == task
    assert convert(document, "d.yaml") == task


def test_what_a_manifest_cannot_say_is_said_above_it():
    said = [line for line in convert(EVERYTHING, "t.yaml").splitlines() if line.startswith("#")]
    assert "# selectors, labels, terminal, ports, priority, idle_timeout, notify: " in "\n".join(said)
    assert any(line.startswith("# after: kubectl starts it at once; first must complete prepare") for line in said)


# what cannot be said


def problems(text: str, to: ConvertTarget | None, group: str | None = None) -> list[str]:
    with pytest.raises(Invalid) as caught:
        convert(text, "d.yaml", to=to, group=group)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("to", [None, ConvertTarget.task])
def test_another_group_is_not_lost_in_a_task(to):
    text = CPU_TEST.replace("  name: test-ubuntu-01", "  name: test-ubuntu-01\n  group: vision")
    (problem,) = problems(text, to, group="alice")
    assert problem == (
        "d.yaml:6:10: metadata.group: 'vision' cannot be said in a task, which belongs to the group of whoever applies "
        "it (name that group: -g vision)"
    )
    task = convert(text, "d.yaml", to=to, group="vision")
    assert read_task(task, "t.yaml").spec == spec_of(CPU_TEST)
    assert "group: vision\n" in convert(text, "d.yaml", to=ConvertTarget.document, group="alice")


@pytest.mark.parametrize(("to", "word"), [(ConvertTarget.task, "task"), (ConvertTarget.kubernetes, "manifest")])
def test_only_a_document_can_say_who_there_is_and_all_that_is_wrong_is_told_at_once(to, word):
    group, user = problems(USER_FILE, to)
    assert group == (
        f"d.yaml:2:1: kind: a Group cannot be said as a {word}: only a document can (convert it with: --to document)"
    )
    assert f"kind: a User cannot be said as a {word}" in user
    (volume,) = problems(DATASET, to)
    assert f"kind: a Volume cannot be said as a {word}" in volume


def test_without_a_wish_what_only_a_document_can_say_stays_one():
    text = a("Group", "{limits: {gpus: 8}}", name="vision") + "---\n" + under_workload("config: {cmd: sleep 1}")
    document, task = convert(text, "d.yaml").split("---\n")
    assert "kind: Group\n" in document
    assert read_task(task, "t.yaml").spec == spec_of(under_workload("config: {cmd: sleep 1}"))
