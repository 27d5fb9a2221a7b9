"""What a machine's disks and networks have moved."""

from __future__ import annotations

from penstock.engines.shared.counters import Traffic, read_traffic, total

DISKS = """\
   7       0 loop0 9 0 9000 0 9 0 9000 0 0 0 0 0
 254       0 vda 10 0 100 0 20 0 200 0 0 0 0 0
 254       1 vda1 10 0 90 0 20 0 190 0 0 0 0 0
 259       0 nvme0n1 1 0 7 0 2 0 8 0 0 0 0 0
 259       1 nvme0n1p1 1 0 7 0 2 0 8 0 0 0 0 0
 253       0 dm-0 1 0 7 0 2 0 8 0 0 0 0 0
   9     127 md127 1 0 7 0 2 0 8 0 0 0 0 0
 253       0 zram0 1 0 7 0 2 0 8 0 0 0 0 0
"""
NETWORK = """\
Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 374622198 520766 0 0 0 0 0 0 374622198 520766 0 0 0 0 0 0
  eth0: 1000  55949    0    0    0     0          0         0  2000   49011    0    0    0     0       0          0
docker0: 7  55949    0    0    0     0          0         0  7   49011    0    0    0     0       0          0
br-7f9c: 7  55949    0    0    0     0          0         0  7   49011    0    0    0     0       0          0
veth12a: 7  55949    0    0    0     0          0         0  7   49011    0    0    0     0       0          0
"""


def test_each_disk_and_each_way_out_counts_once() -> None:
    assert read_traffic(DISKS, NETWORK) == Traffic(107 * 512, 208 * 512, 1000, 2000)


def test_what_a_network_is_made_of_counts_and_not_the_network() -> None:
    """Bonds, networks on a wire of their own number, and what clusters make for pods."""
    names = [
        "bond0",
        "team0",
        "vlan7",
        "eth0.7",
        "br0",
        "wg0",
        "cni0",
        "cilium_host",
        "lxc12",
        "vxlan.calico",
        "enidc9cfb5e6f1",
        "kube-ipvs0",
        "azv1",
    ]
    made = dict.fromkeys(names, (7, 7))
    real = ["eth0", "ens5", "enp1s0f1", "eno1", "enx001122334455", "wlan0", "ib0", "bnep0", "tap0"]
    assert total({}, made | dict.fromkeys(real, (1, 2))) == Traffic(None, None, len(real), 2 * len(real))


def test_what_cannot_be_seen_is_not_nothing() -> None:
    alone = "    lo: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n"
    assert read_traffic("", alone) == Traffic(None, None, None, None)
    assert read_traffic(DISKS, "").since(Traffic(7 * 512, 208 * 512), 2.0) == {
        "disk_read_per_second": 50 * 512,
        "disk_written_per_second": 0,
        "received_per_second": None,
        "sent_per_second": None,
    }
