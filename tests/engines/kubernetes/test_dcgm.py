"""How the lines of NVIDIA's dcgm-exporter are read: only what is said without a doubt counts."""

from __future__ import annotations

import pytest

from penstock.engines.kubernetes.gpus import read_gpus, read_node
from tests.exporting import lines

MIB = 1 << 20
MIG = 'gpu="0",UUID="GPU-0",modelName="NVIDIA A100",GPU_I_PROFILE="1g.5gb",GPU_I_ID="{}",namespace="n",pod="p"'


def found(*text: str) -> list[tuple[str, int | None, int | None]]:
    """Of the pod p in the namespace n."""
    gpus = read_gpus("\n".join(text)).get(("n", "p"), [])
    return [(gpu.uuid, gpu.utilization, gpu.memory_used_bytes) for gpu in gpus]


def test_each_pod_has_its_own_gpus() -> None:
    text = [*lines("p", "n", 0, 87, 2048), *lines("p", "n", 1, 0), *lines("p", "other", 2, 5), *lines("q", "n", 3, 6)]
    assert found(*text) == [("GPU-0", 87, 2048 * MIB), ("GPU-1", 0, 0)]
    assert set(read_gpus("\n".join(text))) == {("n", "p"), ("other", "p"), ("n", "q")}


@pytest.mark.parametrize("number", ["N/A", "", "nan", "-1", "101", "9223372036854775794", "ERROR - FAILED"])
def test_what_is_not_known_is_not_seen(number: str) -> None:
    """DCGM has numbers that stand for what it does not know."""
    assert found(*lines("p", "n", 0, number)) == []


def test_both_numbers_must_be_known() -> None:
    text = lines("p", "n", 0, 0, 7)
    for name in ("DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_FB_USED{"):
        assert found(*(line for line in text if not line.startswith(name))) == []
    assert found(*lines("p", "n", 0, 0, "N/A")) == []


@pytest.mark.parametrize("label", ["namespace", "pod", "UUID"])
def test_a_line_that_does_not_say_whose_it_is_counts_for_nobody(label: str) -> None:
    text = [line.replace(f'{label}="', f'no{label}="') for line in lines("p", "n", 0, 0)]
    assert read_gpus("\n".join(text)) == {}


def test_a_gpu_that_nobody_has_is_nobodys() -> None:
    text = [line.replace(',container="task",namespace="n",pod="p"', "") for line in lines("p", "n", 0, 0)]
    assert read_gpus("\n".join(text)) == {}


def test_older_versions_name_the_pod_otherwise() -> None:
    renamed = (("namespace=", "pod_namespace="), (",pod=", ",pod_name="), ("UUID=", "uuid="))
    text = lines("p", "n", 0, 12)
    for old, new in renamed:
        text = [line.replace(old, new) for line in text]
    assert found(*text) == [("GPU-0", 12, 0)]


def test_parts_of_a_gpu_are_apart_and_only_the_ratio_counts_for_them() -> None:
    """The utilization of a whole GPU is not known while it is parted."""
    first, second, third = (MIG.format(number) for number in (1, 2, 3))
    text = [
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{first}}} 0.931200",
        f"DCGM_FI_DEV_FB_USED{{{first}}} 19",
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{second}}} 0.000000",
        f"DCGM_FI_DEV_FB_USED{{{second}}} 3",
        f"DCGM_FI_DEV_GPU_UTIL{{{third}}} 0",
        f"DCGM_FI_DEV_FB_USED{{{third}}} 3",
    ]
    assert found(*text) == [("GPU-0", 94, 19 * MIB), ("GPU-0", 0, 3 * MIB)]


def test_what_does_a_little_is_not_idle() -> None:
    labels = 'UUID="GPU-0",namespace="n",pod="p"'
    text = [f"DCGM_FI_DEV_FB_USED{{{labels}}} 1", f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} 0.0004"]
    assert found(*text) == [("GPU-0", 1, MIB)]
    assert found(*text, f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 0") == [("GPU-0", 1, MIB)]
    assert found(*text, f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 63") == [("GPU-0", 63, MIB)]


def test_of_a_gpu_that_pods_share_each_turn_counts_and_of_several_processes_the_busiest() -> None:
    share = 'UUID="GPU-0",vgpu="{}",namespace="n",pod="p"'
    text = [f"DCGM_FI_DEV_FB_USED{{{share.format(number)}}} 1" for number in (0, 1)]
    text += [f'DCGM_FI_DEV_GPU_UTIL{{{share.format(0)},pid="{pid}"}} {number}' for pid, number in ((7, 40), (8, 0))]
    text += [f"DCGM_FI_DEV_GPU_UTIL{{{share.format(1)}}} 0"]
    assert found(*text) == [("GPU-0", 40, MIB), ("GPU-0", 0, MIB)]


def test_labels_may_hold_anything() -> None:
    odd = r'UUID="GPU-0",label_note="a \"quoted\", brace } and \\",namespace="n",pod="p"'
    assert found(f"DCGM_FI_DEV_GPU_UTIL{{{odd}}} 5", f"DCGM_FI_DEV_FB_USED{{{odd}}} 1 1731780000000") == [
        ("GPU-0", 5, MIB)
    ]


@pytest.mark.parametrize(
    "text", ["", "<html>404</html>", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_GPU_UTIL{} 5", "\0�"]
)
def test_what_is_something_else_says_nothing(text: str) -> None:
    assert read_gpus(text) == {}


def test_of_a_node_all_are_seen_whoever_has_them_with_what_is_known() -> None:
    free = [line.replace(',container="task",namespace="n",pod="p"', "") for line in lines("p", "n", 1, 0)]
    text = [*lines("p", "n", 0, 87, 2048), *free, *lines("q", "other", 2, "N/A", 7)]
    gpus = [(gpu.uuid, gpu.product, gpu.utilization, gpu.memory_used_bytes) for gpu in read_node("\n".join(text))]
    product = "NVIDIA A10"
    assert gpus == [("GPU-0", product, 87, 2048 * MIB), ("GPU-1", product, 0, 0), ("GPU-2", product, None, 7 * MIB)]


def test_a_gpu_that_pods_share_is_one_of_the_node() -> None:
    text = "\n".join([*lines("p", "n", 0, 40, 5), *lines("q", "n", 0, 40, 9)])
    assert [(gpu.utilization, gpu.memory_used_bytes) for gpu in read_node(text)] == [(40, 9 * MIB)]
