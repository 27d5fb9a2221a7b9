"""A task as the manifest that does the same, a manifest as the task; and back to the same Spec."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from penstock.dialects.convert import ConvertTarget, convert
from penstock.dialects.documents import read_documents
from penstock.dialects.manifest.container import escaped, expanded
from penstock.dialects.manifest.read import ManifestWorkload
from penstock.dialects.manifest.volumes import default_shared_memory, is_usual
from penstock.dialects.manifest.write import write_manifest
from penstock.dialects.task.read import read_task
from penstock.domain.environment import is_ours
from penstock.domain.workloads import (
    UNLIMITED,
    Array,
    FromSecret,
    Medium,
    Mount,
    Port,
    Resources,
    Scratch,
    Selectors,
    Spec,
)
from penstock.errors import Invalid
from tests.dialects.manifests import CLAIM, POD, SMALL_JOB, SWEEP, spec_of
from tests.dialects.test_task_write import specs

GIB = 1024**3
NOT_IN_A_MANIFEST = ("selectors", "labels", "terminal", "ports", "priority", "idle_timeout", "notify")


def read_back(text: str) -> Spec:
    (document,) = read_documents(text, "written.yaml")
    assert isinstance(document, ManifestWorkload)
    return document.task.spec


SECRETS = """apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      imagePullSecrets:
      - name: registry
      containers:
      - image: a:1
        command: [python, train.py]
        envFrom:
        - secretRef: {name: all-of-it}
        - prefix: AWS_
          secretRef: {name: bucket, optional: false}
        env:
        - name: TOKEN
          valueFrom:
            secretKeyRef: {name: hub, key: token}
"""


def test_secrets_that_a_manifest_names_are_read_and_written_again():
    spec = spec_of(SECRETS)
    assert spec.pull_secrets == ("registry",)
    assert spec.from_secrets == (
        FromSecret(secret="all-of-it"),
        FromSecret(secret="bucket", prefix="AWS_"),
        FromSecret(secret="hub", key="token", name="TOKEN"),
    )
    assert read_back(write_manifest(spec)) == spec
    with pytest.raises(Invalid) as refused:
        convert(SECRETS, "m.yaml")
    assert "cannot be said in a task" in str(refused.value.problems)


def test_a_task_is_written_as_the_job_a_person_would_write():
    spec = Spec(
        name="train",
        resources=Resources(cpus_milli=4000, memory_bytes=8 * GIB, gpus=1, gpu_products=("NVIDIA-A10",), image="a:1"),
        envs={"EPOCHS": "10", "NOTE": "$(pwd) $HOME"},
        mounts=(Mount(path="/data", volume="ml-data", read_only=True),),
        scratch=(Scratch(path="/scratch", size_bytes=10 * GIB),),
        run="cd /data\npython train.py\n",
        max_duration=3600,
        stop_grace=60,
        ttl=300,
    )
    assert write_manifest(spec, {"ml-data": "ml-data-abcd2345"}) == (
        "apiVersion: batch/v1\n"
        "kind: Job\n"
        "metadata:\n"
        "  name: train\n"
        "spec:\n"
        "  backoffLimit: 0\n"
        "  ttlSecondsAfterFinished: 300\n"
        "  template:\n"
        "    spec:\n"
        "      restartPolicy: Never\n"
        "      activeDeadlineSeconds: 3600\n"
        "      terminationGracePeriodSeconds: 60\n"
        "      automountServiceAccountToken: false\n"
        "      affinity:\n"
        "        nodeAffinity:\n"
        "          requiredDuringSchedulingIgnoredDuringExecution:\n"
        "            nodeSelectorTerms:\n"
        "            - matchExpressions:\n"
        "              - key: nvidia.com/gpu.product\n"
        "                operator: In\n"
        "                values: [NVIDIA-A10]\n"
        "      containers:\n"
        "      - name: task\n"
        "        image: a:1\n"
        "        command: [/bin/bash, '-c']\n"
        "        args:\n"
        "        - |\n"
        "          cd /data\n"
        "          python train.py\n"
        "        env:\n"
        "        - {name: EPOCHS, value: '10'}\n"
        "        - {name: NOTE, value: $$(pwd) $HOME}\n"
        "        resources:\n"
        "          limits:\n"
        "            cpu: 4\n"
        "            memory: 8Gi\n"
        "            nvidia.com/gpu: 1\n"
        "        volumeMounts:\n"
        "        - name: ml-data-abcd2345\n"
        "          mountPath: /data\n"
        "          readOnly: true\n"
        "        - name: scratch\n"
        "          mountPath: /scratch\n"
        "        - name: dev-shm\n"
        "          mountPath: /dev/shm\n"
        "      volumes:\n"
        "      - name: ml-data-abcd2345\n"
        "        persistentVolumeClaim:\n"
        "          claimName: ml-data-abcd2345\n"
        "      - name: scratch\n"
        "        emptyDir: {sizeLimit: 10Gi}\n"
        "      - name: dev-shm\n"
        "        emptyDir: {medium: Memory, sizeLimit: 4Gi}\n"
    )


def in_a_manifest(spec: Spec) -> Spec:
    """What a manifest can say of a Spec; everything else is told in the comments."""
    limit = spec.resources.memory_bytes
    by_itself = default_shared_memory(limit)
    unusual = [scratch for scratch in spec.scratch if not is_usual(scratch, limit)]
    unlimited = spec.retries == UNLIMITED
    several = spec.nodes > 1
    update = {
        "name": spec.name or "task",
        "after": (),
        "envs": {name: value for name, value in spec.envs.items() if not is_ours(name)},
        "resources": spec.resources.model_copy(
            update={
                "image": spec.resources.image or "python:3.13-slim",
                "gpu_products": tuple(product.replace(" ", "-") for product in spec.resources.gpu_products),
                "exclusive_cpus": False,
            }
        ),
        **{field: Spec.model_fields[field].default for field in NOT_IN_A_MANIFEST},
        "mounts": tuple(Mount(path=m.path, volume=m.volume, read_only=m.read_only) for m in spec.mounts),
        "scratch": tuple(sorted(unusual, key=lambda scratch: scratch == by_itself)),
        "workdir": spec.workdir if spec.workdir and spec.workdir.startswith("/") else None,
        "setup": None,
        "run": f"set -e\n{spec.setup}\nset +e\n{spec.run}" if spec.setup else spec.run,
        "stop_grace": 30 if spec.stop_grace is None else spec.stop_grace,
        "retries": 0 if several else UNLIMITED if spec.restart else spec.retries,
        "requeue": 0 if several else None if spec.restart else 1000 if unlimited else spec.retries,
        "restart": spec.restart and not several,
        "ttl": None if spec.restart and not several else spec.ttl,
    }
    return spec.model_copy(update=update)


@given(specs())
@example(Spec(run=("echo", "$$", "$(A)", "$(a b)", "$$(A)", "$(a $(A))", "1e3", "y", "")))
@example(Spec(run="echo $(A) $$ $(a\n", envs={"A": "$(B)", "B": "$$(A", "C": "0x1F", "D": "~", "E": ".inf"}))
@example(Spec(run=("/bin/bash", "-c", " ")))
@example(Spec(run="a", resources=Resources(memory_bytes=128 * 1024**2)))
@example(Spec(run="a", scratch=(Scratch(path="/dev/shm", medium=Medium.memory, size_bytes=64 * 1024**2),)))
@example(
    Spec(
        run="a",
        resources=Resources(memory_bytes=1024**2),
        scratch=(Scratch(path="/dev/shm", medium=Medium.memory, size_bytes=1024**2), Scratch(path="/a")),
    )
)
@example(Spec(run="a", mounts=(Mount(path="/a", volume="v"), Mount(path="/b", volume="v", read_only=True))))
def test_what_a_manifest_can_say_reads_back_to_the_same(spec):
    assume(spec.run is not None)
    if not isinstance(spec.run, str) and spec.run[:2] == ("/bin/bash", "-c") and len(spec.run) == 3:
        assume(not spec.run[2].strip())
    assume(len(set(in_a_manifest(spec).resources.gpu_products)) == len(spec.resources.gpu_products))
    assume(not spec.resources.gpu_products or "any" not in spec.resources.gpu_products)
    text = write_manifest(spec)
    assert read_back(text) == in_a_manifest(spec)
    assert read_back(text) == read_back(write_manifest(read_back(text)))


@given(st.text("$()ab ", max_size=20))
def test_an_escaped_text_is_handed_on_as_it_was(text):
    assert expanded(escaped(text), {"a": "1", "ab": "2", "b": "3"}) == text


# several nodes


def test_several_nodes_are_an_indexed_job_and_the_service_that_names_them():
    spec = Spec(name="train", nodes=4, run="torchrun --nnodes $NUM_NODES train.py", stop_grace=30)
    text = write_manifest(spec)
    service, job = (document for document in yaml.safe_load_all(text))
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "train"}
    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["backoffLimit"]) == (4, 4, 0)
    variables = {one["name"]: one.get("value") for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables == {"NODE_RANK": None, "NUM_NODES": "4", "MASTER_ADDR": "train-0.train", "MASTER_PORT": "29500"}
    assert read_back(text) == in_a_manifest(spec)


def test_a_variable_of_penstocks_that_the_program_names_is_set():
    job = yaml.safe_load(write_manifest(Spec(run="echo $NODE_RANK of $SKYPILOT_NUM_NODES $GPUS_PER_NODE")))
    assert job["spec"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "NODE_RANK", "value": "0"},
        {"name": "GPUS_PER_NODE", "value": "0"},
        {"name": "SKYPILOT_NUM_NODES", "value": "1"},
    ]


# what cannot be said


def comments(spec: Spec) -> list[str]:
    return [line[2:] for line in write_manifest(spec).splitlines() if line.startswith("# ")]


FULL = {"name": "a", "resources": Resources(image="b")}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (Spec(run="a", resources=Resources(image="b")), "name: the task has none; a manifest needs one, here 'task'"),
        (Spec(run="a", name="a"), "image_id: the task names none; here it is python:3.13-slim"),
        (Spec(run="a", after=("b", "c"), **FULL), "after: kubectl starts it at once; first must complete b, c"),
        (Spec(run="a", workdir=".", **FULL), "workdir: the code in '.' is not sent; put it into the image or a volume"),
        (Spec(run="a", requeue=2, **FULL), "requeue: Kubernetes repeats after a lost node as often as after a failure"),
        (Spec(run="a", retries=2, **FULL), "requeue: Kubernetes repeats after a lost node as often as after a failure"),
        (Spec(run="echo $PENSTOCK_TASK_ID", **FULL), "run: nobody sets PENSTOCK_TASK_ID"),
        (
            Spec(run="a", name="a", resources=Resources(image="b", gpus=1, gpu_products=("A10",))),
            "accelerators: write the products as the nodes' label nvidia.com/gpu.product has them",
        ),
        (
            Spec(run="a", selectors=Selectors(node="gpu01"), ports=(Port(port=80),), priority=3, **FULL),
            "selectors, ports, priority: cannot be said in a manifest that Penstock reads",
        ),
        (
            Spec(run="a", name="a", resources=Resources(image="b", cpus_milli=2000, exclusive_cpus=True)),
            "exclusive_cpus: the cluster's own settings decide who has CPUs to itself",
        ),
        (
            Spec(run="a", mounts=(Mount(path="/a", volume="v", group="g", sub_path="b"),), **FULL),
            "volumes: here each is a claim of the same namespace, mounted as a whole",
        ),
        (Spec(run=None, **FULL), "run: none is said, so the image's own command runs"),
    ],
)
def test_what_no_manifest_can_say_stands_above_it(spec, said):
    assert comments(spec) == [said]


def test_what_several_nodes_lose_stands_above_it():
    assert comments(Spec(run="a", nodes=2, retries=1, **FULL)) == [
        "retries, requeue, restart: Kubernetes repeats a node alone, so here none is repeated",
        "num_nodes: nodes start one by one as they find room, not all together",
    ]


def test_a_task_that_a_manifest_says_wholly_has_no_comments():
    assert (
        comments(Spec(run="a", array=Array(count=3, parallelism=2), queue="q", retries=2, requeue=2, ttl=0, **FULL))
        == []
    )


# convert


def test_a_manifest_becomes_a_task():
    assert convert(POD, "pod.yaml") == (
        "# spec.restartPolicy: Always: each attempt begins with empty emptyDirs\n"
        "name: scratch-alice\n"
        "resources:\n"
        "  cpus: 100m\n"
        "  memory: 8Gi\n"
        "  disk_size: 10Gi\n"
        "  image_id: rockylinux:8\n"
        "  requests: {memory: 4Gi, disk_size: 1Gi}\n"
        "volumes:\n"
        "  /mnt/disk: {medium: disk}\n"
        "  /mnt/ram: {medium: memory}\n"
        "  /dev/shm: {size: 64Mi, medium: memory}\n"
        "run: [sh, -c, sleep 1000]\n"
        "stop_grace: 30s\n"
        "restart: always\n"
    )


@pytest.mark.parametrize("manifest", [POD, SWEEP, SMALL_JOB])
def test_there_and_back_it_is_the_same(manifest):
    task = convert(manifest, "m.yaml")
    assert read_task(task, "t.yaml").spec == spec_of(manifest)
    assert spec_of(convert(task, "t.yaml")) == spec_of(manifest)


def test_a_claim_becomes_the_command_that_makes_it():
    text = convert(f"{CLAIM}---\n{SMALL_JOB}", "m.yaml")
    command = "penstock volumes create results-alice 1Gi --storage-class rook-cephfs --access-modes ReadWriteMany"
    assert text.startswith(f"# {command}\n---\nname: small\n")
    assert read_task(text, "t.yaml").spec == spec_of(SMALL_JOB)
    plain = CLAIM.replace("Many", "Once").replace("  storageClassName: rook-cephfs\n", "")
    assert convert(plain, "m.yaml") == "# penstock volumes create results-alice 1Gi\n"


def test_what_the_reader_should_know_of_a_task_stands_above_its_manifest():
    text = convert("name: a\nresources: {image_id: b}\nsecrets: {A: b}\nrun: c\n", "t.yaml")
    assert text.startswith("# secrets: are passed like envs and kept with the job; what shows the job masks them\n")


def test_a_secret_is_written_without_its_value_in_every_way_of_writing():
    text = "name: a\nresources: {image_id: b}\nsecrets: {LICENCE: hunter2}\nenvs: {EPOCHS: 3}\nrun: c\n"
    for to in ConvertTarget:
        written = convert(text, "t.yaml", to=to)
        assert "hunter2" not in written
        assert "LICENCE" in written
        assert "EPOCHS" in written
    assert "secrets:\n  LICENCE: null\n" in convert(text, "t.yaml", to=ConvertTarget.task)
    assert "    secrets:\n      LICENCE: null\n" in convert(text, "t.yaml", to=ConvertTarget.document)
    manifest = convert(text, "t.yaml", to=ConvertTarget.kubernetes)
    assert "# secrets: before it, kubectl create secret generic a --from-literal=LICENCE=…\n" in manifest
    assert "- name: LICENCE\n          valueFrom:\n            secretKeyRef: {name: a, key: LICENCE}\n" in manifest


def test_a_secret_that_is_named_reads_back_as_one_that_is_kept_elsewhere():
    text = "name: a\nresources: {image_id: b}\nsecrets: {LICENCE: hunter2}\nrun: c\n"
    for to in (ConvertTarget.task, ConvertTarget.document):
        [read] = read_documents(convert(text, "t.yaml", to=to), "w.yaml")
        assert (read.task.spec.envs, read.task.spec.open_secrets) == ({}, ("LICENCE",))


def test_the_image_of_a_task_that_names_none_is_the_servers():
    assert "image: mine:1\n" in convert("run: a", "t.yaml", image="mine:1")


def test_what_cannot_be_read_is_not_converted():
    with pytest.raises(Invalid, match="1 problem"):
        convert("nmae: a\nrun: b", "t.yaml")
