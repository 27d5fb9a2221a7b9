"""Volumes of a manifest, /dev/shm, and the choice of GPU products."""

from __future__ import annotations

import pytest

from penstock.dialects.manifest.unsupported import VOLUME_REFUSED
from penstock.domain.workloads import Medium, Mount, Scratch
from tests.dialects.manifests import problems_of, spec_of, task_of, under_container, under_pod

GIB = 1024**3

# volumes


def mounting(source: str, mount: str = "") -> str:
    return (
        under_container(f"volumeMounts: [{{name: v, mountPath: /v{mount}}}]") + f"  volumes: [{{name: v, {source}}}]\n"
    )


@pytest.mark.parametrize(
    ("source", "there"),
    [
        ("emptyDir: {}", Scratch(path="/v")),
        ("emptyDir: ", Scratch(path="/v")),
        ("emptyDir: {medium: ''}", Scratch(path="/v")),
        ("emptyDir: {sizeLimit: 10Gi}", Scratch(path="/v", size_bytes=10 * GIB)),
        ("emptyDir: {medium: Memory, sizeLimit: 1Gi}", Scratch(path="/v", medium=Medium.memory, size_bytes=GIB)),
        ("persistentVolumeClaim: {claimName: data}", Mount(path="/v", volume="data")),
        ("persistentVolumeClaim: {claimName: data, readOnly: true}", Mount(path="/v", volume="data", read_only=True)),
    ],
)
def test_claims_are_mounted_and_empty_dirs_are_scratch(source, there):
    spec = spec_of(mounting(source))
    assert (*spec.mounts, *spec.scratch)[0] == there


def test_a_mount_may_be_read_only_and_a_claim_mounted_twice():
    text = mounting("persistentVolumeClaim: {claimName: data}", "}, {name: v, mountPath: /w, readOnly: true")
    assert spec_of(text).mounts == (Mount(path="/v", volume="data"), Mount(path="/w", volume="data", read_only=True))


def test_a_volume_that_is_mounted_nowhere_is_told():
    task = task_of(under_pod("volumes: [{name: v, emptyDir: {}}]"))
    assert task.notices == ("spec.volumes[0]: the volume 'v' is mounted nowhere and not used",)


@pytest.mark.parametrize("key", sorted(VOLUME_REFUSED))
def test_other_sources_are_refused_with_their_path(key):
    (problem,) = problems_of(mounting(f"{key}: {{a: b}}"))
    assert f": spec.volumes[0].{key}: is not supported: {VOLUME_REFUSED[key][0]} (" in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            mounting("emptyDir: {medium: HugePages}"),
            "volumes[0].emptyDir.medium: 'HugePages' is not supported: only ''",
        ),
        (mounting("emptyDir: {sizeLimit: 10}"), "volumes[0].emptyDir.sizeLimit: '10' has no unit (10Gi or 10Mi)"),
        (mounting("persistentVolumeClaim: {}"), "volumes[0].persistentVolumeClaim.claimName: is missing (for"),
        (
            mounting("persistentVolumeClaim: {claimName: A}"),
            "volumes[0].persistentVolumeClaim.claimName: 'A' is not a v",
        ),
        (
            mounting("emptyDir: {}", ", subPath: x"),
            "containers[0].volumeMounts[0].subPath: is not supported: a volume is mounted as a whole (mount it and use",
        ),
        (
            mounting("emptyDir: {}", ", readOnly: true"),
            "containers[0].volumeMounts[0].readOnly: an emptyDir nobody may",
        ),
        (
            mounting("emptyDir: {}", "}, {name: v, mountPath: /w"),
            "containers[0].volumeMounts[1].mountPath: an emptyDir has one path here, and this one is at '/v' already",
        ),
        (
            mounting("emptyDir: {}", "}, {name: w, mountPath: /w"),
            "containers[0].volumeMounts[1].name: there is no volume 'w' (the volumes are v)",
        ),
        (
            mounting("emptyDir: {}").replace("mountPath: /v", "mountPath: /etc/x"),
            "containers[0].volumeMounts[0].mountPath: '/etc/x' belongs to the system",
        ),
        (
            mounting("persistentVolumeClaim: {claimName: a}", "}, {name: v, mountPath: /v/"),
            "containers[0].volumeMounts[1].mountPath: '/v' has something mounted already",
        ),
        (under_pod("volumes: [{name: v}]"), "volumes[0]: names no source (persistentVolumeClaim, or 'emptyDir: {}')"),
        (under_pod("volumes: [{emptyDir: {}}]"), "volumes[0].name: is missing"),
        (
            under_pod("volumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]"),
            "volumes[1].name: another volume is called 'v' already",
        ),
    ],
)
def test_a_place_that_cannot_be_is_refused(text, said):
    assert problems_of(text)[0].partition(": ")[2].startswith(f"spec.{said}")


# /dev/shm


def shared_memory(*lines: str) -> tuple[Scratch, ...]:
    return tuple(scratch for scratch in spec_of(under_container(*lines)).scratch if scratch.path == "/dev/shm")


def test_dev_shm_is_kubernetes_64_mib_unless_something_is_mounted_there():
    small = Scratch(path="/dev/shm", medium=Medium.memory, size_bytes=64 * 1024**2)
    assert shared_memory() == (small,)
    assert shared_memory("resources: {limits: {memory: 8Gi}}") == (small,)
    text = mounting("emptyDir: {medium: Memory, sizeLimit: 4Gi}").replace("mountPath: /v", "mountPath: /dev/shm")
    assert spec_of(text).scratch == (Scratch(path="/dev/shm", medium=Medium.memory, size_bytes=4 * GIB),)


def test_dev_shm_of_half_the_memory_is_what_a_task_has_anyway():
    text = mounting("emptyDir: {medium: Memory, sizeLimit: 4Gi}").replace("mountPath: /v", "mountPath: /dev/shm")
    assert spec_of(text.replace("    command", "    resources: {limits: {memory: 8Gi}}\n    command")).scratch == ()


def test_a_ramdisk_beyond_the_memory_limit_has_that_limit_as_kubernetes_gives_it():
    text = mounting("emptyDir: {medium: Memory, sizeLimit: 4Gi}")
    task = task_of(text.replace("    command", "    resources: {limits: {memory: 1Gi}}\n    command"))
    assert task.spec.scratch[0].size_bytes == GIB
    assert task.notices == ("/v: has the 1Gi of the memory limit, not more",)


# GPU products


def choosing(expression: str, rest: str = "") -> str:
    term = f"{{matchExpressions: [{expression}]{rest}}}"
    required = f"{{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}}}"
    return gpu_pod(f"affinity: {{nodeAffinity: {required}}}")


def gpu_pod(*lines: str) -> str:
    return under_container("resources: {limits: {nvidia.com/gpu: 2}}") + "".join(f"  {line}\n" for line in lines)


def test_gpu_products_are_chosen_by_affinity_or_node_selector():
    several = choosing("{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-A10, NVIDIA-L4]}")
    assert spec_of(several).resources.gpu_products == ("NVIDIA-A10", "NVIDIA-L4")
    one = gpu_pod("nodeSelector: {nvidia.com/gpu.product: NVIDIA-A10}")
    assert spec_of(one).resources.gpu_products == ("NVIDIA-A10",)
    assert spec_of(gpu_pod("nodeSelector: {}", "affinity: {}")).resources.gpu_products == ()


PRODUCT = "key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-A10]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            choosing("{key: zone, operator: In, values: [a]}"),
            ".matchExpressions[0].key: 'zone' is not supported: of the nodes' labels only nvidia.com/gpu.product can",
        ),
        (
            choosing("{key: nvidia.com/gpu.product, operator: NotIn, values: [a]}"),
            ".matchExpressions[0].operator: 'NotIn' is not supported: only In is",
        ),
        (
            choosing("{key: nvidia.com/gpu.product, operator: In}"),
            ".matchExpressions[0].values: is missing (for exampl",
        ),
        (
            choosing("{key: nvidia.com/gpu.product, operator: In, values: ['1']}"),
            ".matchExpressions[0].values[0]: '1' names no GPU product (for example NVIDIA-A10)",
        ),
        (choosing(f"{{{PRODUCT}}}, {{{PRODUCT}}}"), ".matchExpressions: has 2 items; one can be carried"),
        (
            choosing(f"{{{PRODUCT}}}", ", matchFields: [a]"),
            ".matchFields: is not supported: the scheduler chooses the node",
        ),
        (
            gpu_pod("affinity: {podAffinity: {a: b}}"),
            "spec.affinity.podAffinity: is not supported: where a workload runs",
        ),
        (
            gpu_pod("affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [a]}}"),
            "nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: is not supported: only a GPU product that",
        ),
        (
            gpu_pod("nodeSelector: {kubernetes.io/hostname: x}"),
            "spec.nodeSelector['kubernetes.io/hostname']: is not supported: of the nodes' labels only",
        ),
        (
            under_pod("nodeSelector: {nvidia.com/gpu.product: NVIDIA-A10}"),
            "spec: chooses a GPU product and asks for no GPU (write 'nvidia.com/gpu: 1' under the container's limits)",
        ),
        (
            choosing(f"{{{PRODUCT}}}") + "  nodeSelector: {nvidia.com/gpu.product: NVIDIA-A10}\n",
            "spec.nodeSelector: chooses a GPU product, and affinity does, too (keep one of them)",
        ),
    ],
)
def test_other_choices_of_nodes_are_refused(text, said):
    (problem,) = problems_of(text)
    assert said in problem
