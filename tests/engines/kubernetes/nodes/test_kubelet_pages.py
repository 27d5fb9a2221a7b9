"""How the two pages of a kubelet are read: the node among all that is on it, and each byte once."""

from __future__ import annotations

import json

import pytest

from penstock.engines.kubernetes.nodes.kubelet import ContainerUsage, TrafficSample, is_wanted, read_sample, read_use
from penstock.engines.shared.counters import Traffic

AT = 1763418174438


def line(name: str, number: object, id_: str = "/", pod: str = "", **label: str) -> str:
    """As a kubelet prints them: labels in the order of the alphabet, and at the end when it was measured."""
    labels = {"container": "", "id": id_, "image": "", "name": "", "namespace": "", "pod": pod} | label
    text = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"container_{name}_bytes_total{{{text}}} {number} {AT}"


def disk(device: str, read: object, written: object) -> list[str]:
    return [line("fs_reads", read, device=device), line("fs_writes", written, device=device)]


def wire(interface: str, received: object, sent: object) -> list[str]:
    names = (("network_receive", received), ("network_transmit", sent))
    return [line(name, number, interface=interface) for name, number in names]


def moved(*lines: list[str]) -> Traffic:
    sample = read_sample(each for several in lines for each in several)
    assert sample
    return sample.traffic


def test_the_node_is_told_from_its_pods_and_with_when_it_was_measured() -> None:
    pod = line("fs_writes", 7, id_="/kubepods/pod1", pod="train", device="/dev/sda")
    lines = [*disk("/dev/sda", "1.5e+03", 2000), *wire("eth0", 3000, "4.2e+09"), pod]
    assert read_sample(lines) == TrafficSample(AT / 1000, Traffic(1500, 2000, 3000, 4_200_000_000))
    assert [is_wanted(each.encode()) for each in lines] == [True] * 4 + [False]
    assert not is_wanted(b'container_fs_writes_total{device="/dev/sda",id="/"} 1 1')


def test_each_byte_is_counted_once() -> None:
    """A partition, what lies on disks under a name of its own, and networks within the node are among the others."""
    nothing = [*disk("/dev/sda1", 5, 5), *disk("/dev/mapper/vg-root", 5, 5), *disk("/dev/dm-0", 5, 5), *disk("", 5, 5)]
    inner = ["cni0", "cilium_vxlan", "lxc31f", "eni1a2b3c4d5e6", "kube-ipvs0", "vxlan.calico", "bond0", "eth0.12"]
    found = moved(
        disk("/dev/sda", 1, 2), disk("/dev/nvme0n1", 10, 20), nothing, wire("eth0", 3, 4), wire("ens5", 30, 40)
    )
    assert found == Traffic(11, 22, 33, 44)
    assert moved(disk("/dev/sda", 1, 2), *(wire(name, 5, 5) for name in inner)) == Traffic(1, 2, None, None)


def test_what_is_not_told_is_not_nothing() -> None:
    assert moved(wire("eth0", 3, 4)) == Traffic(None, None, 3, 4)
    assert moved(disk("/dev/mapper/vg-root", 1, 2)) == Traffic(None, None, None, None)
    assert read_sample([]) is None
    assert read_sample([line("fs_writes", 7, id_="/kubepods", device="/dev/sda")]) is None


@pytest.mark.parametrize("number", ["NaN", "+Inf", "x", ""])
def test_what_is_no_number_is_not_seen(number: str) -> None:
    assert moved(disk("/dev/sda", number, number), wire("eth0", 3, 4)) == Traffic(None, None, 3, 4)


def test_nobody_passes_for_the_node_by_what_they_are_called() -> None:
    disguised = line("fs_writes", 7, id_="/kubepods", device="/dev/sda", image='x\\",id=\\"/\\",y=\\"')
    assert read_sample([disguised]) is None


def test_use_is_that_of_the_node_whatever_its_pods_do() -> None:
    cpu = {"time": "2026-11-17T22:22:54Z", "usageNanoCores": 1_250_000_000, "usageCoreNanoSeconds": 1}
    pods = [{"podRef": {"name": "train", "namespace": "jobs", "uid": "1"}, "cpu": cpu}]
    page = {"node": {"nodeName": "node-1", "cpu": cpu, "memory": {"workingSetBytes": 512}}, "pods": pods}
    assert read_use(json.dumps(page).encode()) == ContainerUsage(cpu["time"], 125.0, 512)
    assert read_use(json.dumps(page | {"pods": None}).encode()) == ContainerUsage(cpu["time"], 125.0, 512)


def test_the_cpu_of_a_kubelet_that_has_measured_once_is_not_known_rather_than_nothing() -> None:
    page = {"node": {"cpu": {"time": "2026-11-17T22:22:54Z"}, "memory": {"workingSetBytes": 512}}}
    assert read_use(json.dumps(page).encode()) == ContainerUsage("2026-11-17T22:22:54Z", None, 512)


@pytest.mark.parametrize("page", [b"", b"{}", b'{"node": {"cpu": 1}}', b'{"node": {}}', b"\xff", b"<html>"])
def test_a_page_that_tells_something_else_is_no_use(page: bytes) -> None:
    assert read_use(page) is None
