"""PWM's documents as they are, kinds that are not applied, and texts that are none."""

from __future__ import annotations

import json
import sys
from subprocess import run

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock.dialects.document.config import CONFIG, NETWORK, PORT
from penstock.dialects.document.node import GPU, NODE
from penstock.dialects.document.people import GROUP, LIMITS, MEMBERSHIP, USER
from penstock.dialects.document.types import AskedVolume, NounDocument, WorkloadDocument
from penstock.dialects.document.volumes import NFS, STORAGE, VOLUME, VOLUMES
from penstock.dialects.document.workload import CPU, SELECTORS
from penstock.dialects.document.workload import WORKLOAD as WORKLOAD_SHAPE
from penstock.dialects.documents import TaskDocument, read_documents
from penstock.dialects.manifest.read import ManifestVolume, ManifestWorkload
from penstock.domain import kinds, policy
from penstock.domain.users import Group, Membership, User
from penstock.domain.workloads import Mount, Resources, Selectors, Spec
from penstock.errors import Invalid
from tests.dialects.documents import WORKLOAD, a, noun_document, problem_of, problems_of, spec_of, workload_of
from tests.dialects.manifests import CLAIM, SMALL_JOB
from tests.dialects.test_text import YAMLISH
from tests.e2e.pwm import CPU_TEST, DATASET, DOCUMENTS, FIRST_TEST, TENSORFLOW, USER_FILE


def test_the_first_workload_asks_for_a_gpu_and_takes_its_images_own_command():
    document = workload_of(FIRST_TEST)
    assert (document.name, document.group) == ("first-test", None)
    assert document.task.spec == Spec(
        name="first-test",
        resources=Resources(gpus=1, gpu_products=("Quadro RTX 6000",), image="tensorflow/tensorflow"),
        run=None,
        terminal=True,
    )


def test_the_cpu_workload_has_one_cpu_of_any_product_to_itself_and_a_terminal():
    assert spec_of(CPU_TEST) == Spec(
        name="test-ubuntu-01",
        resources=Resources(cpus_milli=1000, exclusive_cpus=True, image="ubuntu"),
        run=("/bin/bash",),
        terminal=True,
    )


def test_the_dataset_is_a_volume_nobody_may_write_to():
    document = noun_document(DATASET)
    assert (document.kind, document.name, document.group) == ("Volume", "datasets-hmdb-uci", "pwm.resource")
    assert document.noun == AskedVolume(
        name="datasets-hmdb-uci", storage="pwmzfs01", sub_path="datasets/hmdb_ucf", readonly=True
    )


def test_a_home_is_made_where_it_is_said_and_a_dataset_is_another_groups():
    spec = spec_of(TENSORFLOW)
    assert spec.selectors == Selectors(node="emcprom09")
    assert spec.mounts == (
        Mount(path="/home", volume="home", storage="pwmzfs01"),
        Mount(path="/usr/datasets", volume="datasets-hmdb-uci", group="pwm.resource"),
    )


def test_the_sample_user_file_is_a_group_and_a_user():
    group, user = read_documents(USER_FILE, "user.yaml")
    assert isinstance(group, NounDocument)
    assert isinstance(user, NounDocument)
    assert group.noun == Group(name="yourUserName")
    verbs = ("get", "getOne", "apply", "delete", "describe", "shell", "cancel")
    assert user.noun == User(
        name="yourUserName",
        groups=(
            Membership(name="yourUserName", policy={"Workload": verbs, "Volume": ("get",)}),
            Membership(name="pwm.resource", policy={"Storage": ("get",), "CPU": ("get",), "GPU": ("get",)}),
        ),
    )


@pytest.mark.parametrize("text", DOCUMENTS)
def test_nobody_is_told_anything_about_the_documents_own_files(text):
    for document in read_documents(text, "d.yaml"):
        assert not isinstance(document, WorkloadDocument) or document.task.notices == ()


# kinds


def test_tasks_manifests_and_documents_stand_in_one_file():
    job = SMALL_JOB.replace("small", "job")
    found = read_documents(f"{WORKLOAD}---\n{job}---\n{CLAIM}---\nname: t\nrun: a\n---\n{DATASET}", "all.yaml")
    assert [type(each) for each in found] == [
        WorkloadDocument,
        ManifestWorkload,
        ManifestVolume,
        TaskDocument,
        NounDocument,
    ]


def test_a_list_may_hold_documents():
    items = "- " + WORKLOAD.replace("\n", "\n  ").rstrip(" ")
    (document,) = read_documents(f"apiVersion: v1\nkind: List\nitems:\n{items}", "l.yaml")
    assert isinstance(document, WorkloadDocument)
    assert document.task.field("name") == "items[0].metadata.name"


@pytest.mark.parametrize("kind", ["GPU", "CPU"])
def test_what_is_found_on_nodes_is_not_applied(kind):
    assert problem_of(a(kind, "{}")) == (
        f"d.yaml:2:7: kind: a {kind} is not applied: a {kind} is found on its node "
        f"(penstock get {kind.lower()} shows them)"
    )


def test_an_unknown_kind_is_told_the_right_ones():
    (problem,) = problems_of(a("Zone", "{}"))
    assert problem.startswith(
        "d.yaml:2:7: kind: 'Zone' is not a kind Penstock knows (the kinds are Workload, Node, Group, User, Volume, "
        "Storage, and Kubernetes' Pod, Job, PersistentVolumeClaim and List; a task has no kind)"
    )


@pytest.mark.parametrize("kind", kinds.APPLIED)
def test_each_kind_is_of_the_one_version(kind):
    text = a(kind, "{}").replace("v1", "v2")
    assert problems_of(text)[0] == f"d.yaml:1:13: apiVersion: must be 'v1' for a {kind} (write v1)"


def test_the_table_of_kinds_is_the_policys():
    assert set(kinds.ALIASES) <= set(policy.Kind)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("wk", "Workload"),
        ("gpus", "GPU"),
        ("GPU", "GPU"),
        ("vols", "Volume"),
        ("Storage", "Storage"),
        ("users", "User"),
        ("pod", None),
    ],
)
def test_a_kind_has_several_words(word, kind):
    assert kinds.kind_named(word) == kind


def test_the_table_of_kinds_costs_a_command_line_nothing():
    code = "import penstock.domain.kinds, sys; sys.exit(bool({'yaml', 'pydantic', 'dataclasses'} & set(sys.modules)))"
    assert run([sys.executable, "-I", "-c", code], check=False).returncode == 0


# names and groups


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (a("Workload", "{}", name="Train"), "d.yaml:3:18: metadata.name: 'Train' is not a name: lower-case letters"),
        (a("Node", "{}", name="GPU01"), "d.yaml:3:18: metadata.name: 'GPU01' is not a name: lower-case letters"),
        (
            a("Node", "{}", name="Jakku 3"),
            "d.yaml:3:18: metadata.name: 'Jakku 3' is not a name: lower-case letters, digits, '-' and '.', "
            "253 characters at most (for example gpu01)",
        ),
        (a("User", "{}", name="'a b'"), "d.yaml:3:18: metadata.name: 'a b' is not a name: letters, digits, '.', '_'"),
        (a("Group", "{}", name="pwm.all"), "d.yaml:3:18: metadata.name: 'pwm.all' stands for all groups"),
        (
            a("Volume", "{}", group="pwm.all"),
            "d.yaml:3:30: metadata.group: 'pwm.all' is all groups, and this belongs to one (pwm.resource is shared)",
        ),
        (a("Storage", "{}", group="'a/b'"), "d.yaml:3:30: metadata.group: 'a/b' is not a group's name: letters"),
        (
            a("User", "{}", group="x"),
            "d.yaml:3:23: metadata.group: is not supported: a user's groups are in spec.groups (write it there)",
        ),
        (a("Group", "{}", group="x"), "d.yaml:3:23: metadata.group: is not supported: a group is in no other one"),
        (
            WORKLOAD.replace("{name: small}", "{name: a, namespace: a}"),
            "d.yaml:3:21: metadata.namespace: is not supported: things belong to groups (write 'group')",
        ),
        (WORKLOAD.replace("{name: small}", "{}"), "d.yaml:3:11: metadata.name: is missing (for example 'name: train')"),
        (WORKLOAD.replace("metadata: {name: small}\n", ""), "d.yaml:1:1: metadata: is missing"),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n", "d.yaml:1:1: spec: is missing"),
        (
            "kind: Wrkload\n",
            "d.yaml:1:7: kind: 'Wrkload' is not a kind Penstock knows (did you mean Workload? the kinds",
        ),
        ("kind: wk\n", "d.yaml:1:7: kind: 'wk' is not a kind Penstock knows (did you mean Workload? the kinds are"),
        (WORKLOAD + "status: {}\nwants: RUN\n", "d.yaml:8:1: wants: is not supported: Penstock has nothing for it"),
        (WORKLOAD + "status: [RUNNING]\n", "d.yaml:7:1: status: is not supported: the server wrote it (remove it)"),
    ],
)
def test_what_is_wrong_around_the_spec_is_said(text, said):
    assert problems_of(text)[0].startswith(said)


@pytest.mark.parametrize("kind", ["Workload", "Node", "Storage", "User", "Volume"])
def test_all_that_is_missing_is_said_at_once(kind):
    found = [problem.split(": ")[1:3] for problem in problems_of(f"kind: {kind}\n")]
    assert [field for field, _ in found] == ["apiVersion", "metadata", "spec"]
    assert found[1][1].startswith("is missing (for example 'metadata")


def test_two_of_one_name_in_one_group_are_one_too_many():
    assert problem_of(f"{WORKLOAD}---\nname: small\nrun: a\n") == (
        "d.yaml:8:1: name: a workload 'small' is in this file already"
    )
    volume = a("Volume", "{storage: s}")
    other = a("Volume", "{storage: s}", group="pwm.resource")
    assert len(read_documents(f"{volume}---\n{other}---\n{a('Group', '{}')}", "d.yaml")) == 3
    assert problem_of(f"{volume}---\n{volume}") == "d.yaml:8:18: metadata.name: a volume 'one' is in this file already"


def test_all_problems_of_all_documents_come_at_once():
    text = (
        f"{WORKLOAD.replace('pwm.docker', 'docker')}---\n{a('Node', '{address: 10.0.0.1:3001}')}---\n{a('GPU', '{}')}"
    )
    assert [problem.split(":")[1] for problem in problems_of(text)] == ["5", "11", "14"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ('run: "never closed\n', "1:6: a quote is opened and never closed"),
        ("run: [a, b\n", "1:6: a '[' is not closed, or a ',' is missing"),
        ("run: a\n b: c\n", "2:3: a ':' stands where no key can be (check the indentation, or quote the text)"),
        ("run: @a\n", "1:6: a text cannot begin with this character (put it in quotes)"),
        ("run: *a\n", "1:6: '*a' stands for nothing: there is no '&a' before it"),
        (f"run: {'[' * 50}\n", "1:45: is nested more than 40 levels deep"),
    ],
)
@pytest.mark.parametrize("line", ["\n", "\r\n", "\r"])
def test_one_that_cannot_be_read_hides_none_of_the_others(broken, said, line):
    lines = broken.count("\n")
    text = f"{broken}---\nname: ö\nrun: é\n--- # right\nname: right\nrun: b\n---\n{broken}---\nnme: x\nrun: a\n"
    found = problems_of(text.replace("\n", line))
    later = f"{lines + 7 + int(said[0])}{said[1:]}"
    assert [found[0], found[2]] == [f"d.yaml:{said}", f"d.yaml:{later}"]
    assert found[1].startswith(f"d.yaml:{lines + 2}:7: name: ")
    assert found[3].startswith(f"d.yaml:{2 * lines + 9}:1: nme: ")
    assert len(found) == 4


def test_of_very_many_that_cannot_be_read_the_first_are_said():
    assert len(problems_of("run: @a\n---\n" * 1000)) == 20


# anything at all


@given(YAMLISH.map(lambda text: WORKLOAD + text) | YAMLISH.map(lambda text: f"{DATASET}---\n{text}"))
def test_anything_is_documents_or_an_error_that_says_why(text):
    try:
        read_documents(text, "d.yaml")
    except Invalid as error:
        caught = error
    else:
        return
    assert caught.problems
    assert caught.body()["detail"].encode()


SHAPES = [CONFIG, GROUP, LIMITS, GPU, NODE, NETWORK, PORT, CPU, SELECTORS, NFS, STORAGE, MEMBERSHIP, USER, VOLUME]
NAMES = {name for shape in (*SHAPES, VOLUMES, WORKLOAD_SHAPE) for name in (*shape.readers, *shape.refused)}
KEYS = st.sampled_from(sorted(NAMES | {"telegram", "webhook", "id", "url", "sendOn", "Workload"})) | st.text(max_size=3)
VALUES = st.none() | st.sampled_from(
    ["pwm.docker", "pwm.all", "8Gi", "a", "4", "0.5", "0", "true", "/data", "a=b", "-itd", "RUNNING", "8888/tcp", "12h"]
)
NODES = st.recursive(
    VALUES | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@given(st.sampled_from(kinds.APPLIED), st.dictionaries(KEYS, NODES, max_size=6))
def test_any_tree_of_keys_is_a_document_or_an_error_that_says_why(kind, spec):
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    try:
        read_documents(json.dumps(body), "d.json")
    except Invalid as error:
        json.dumps(error.body()["problems"])


@given(st.sampled_from(DOCUMENTS), st.integers(0, 60), NODES)
def test_any_value_changed_in_a_right_document_is_a_document_or_an_error(text, number, value):
    bodies = [body for body in yaml.safe_load_all(text) if body]
    places = [place for body in bodies for place in _places(body)]
    inside, key = places[number % len(places)]
    inside[key] = value
    try:
        read_documents("\n---\n".join(map(json.dumps, bodies)), "d.json")
    except Invalid as error:
        json.dumps(error.body()["problems"])


def _places(node):
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)
