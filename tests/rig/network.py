"""The rig's network: a bridge beside the control plane, and a network namespace with a cable to it for each node.

This machine has a cable to the bridge too, the only part of the rig that is seen outside. Nodes, pods and services
are reached through it by their addresses, and a server of a test by `Addresses.host` from inside.
"""

from __future__ import annotations

from tests.rig.places import Addresses
from tests.rig.processes import Processes, run

BRIDGE = "bridge"


def node_name(number: int) -> str:
    return f"node-{number}"


def connect(processes: Processes, addresses: Addresses, nodes: int) -> None:
    inside = ["set -e", *_bridge(addresses)]
    for number in range(1, nodes + 1):
        inside += _node(addresses, number, nodes)
    processes.run("sh", "-c", "\n".join(inside))
    run("sh", "-c", "\n".join(["set -e", *_host(addresses, nodes, processes.holder or 0)]))
    processes.run("ip", "link", "set", "host", "master", BRIDGE, "up")


def _bridge(addresses: Addresses) -> list[str]:
    return [
        "mkdir -p /run/netns",
        "ip link set lo up",
        f"ip link add {BRIDGE} type bridge",
        f"ip addr add {addresses.control}/24 dev {BRIDGE}",
        f"ip link set {BRIDGE} up",
        "sysctl -qw net.ipv4.ip_forward=1",
        "sysctl -qw net.bridge.bridge-nf-call-iptables=0 || true",
        f"ip route add {addresses.services} via {addresses.node(1)}",
    ]


def _node(addresses: Addresses, number: int, nodes: int) -> list[str]:
    name, address = node_name(number), addresses.node(number)
    lines = [
        f"ip netns add {name}",
        f"ip link add {name} type veth peer name eth0 netns {name}",
        f"ip link set {name} master {BRIDGE} up",
        f"ip -n {name} addr add {address}/24 dev eth0",
        f"ip -n {name} link set eth0 up",
        f"ip -n {name} link set lo up",
        f"ip -n {name} route add default via {addresses.control}",
        f"nsenter --net=/run/netns/{name} sysctl -qw net.ipv4.ip_forward=1",
        f"ip route add {addresses.pods(number)} via {address}",
    ]
    for other in range(1, nodes + 1):
        if other != number:
            lines.append(f"ip -n {name} route add {addresses.pods(other)} via {addresses.node(other)}")
    return lines


def _host(addresses: Addresses, nodes: int, holder: int) -> list[str]:
    lines = [
        f"ip link add {addresses.link} type veth peer name host netns {holder}",
        f"ip addr add {addresses.host}/24 dev {addresses.link}",
        f"ip link set {addresses.link} up",
        f"ip route add {addresses.services} via {addresses.node(1)}",
    ]
    for number in range(1, nodes + 1):
        lines.append(f"ip route add {addresses.pods(number)} via {addresses.node(number)}")
    return lines


def disconnect(addresses: Addresses) -> None:
    """Remove this machine's cable: the kernel would, but some time after the rig's last process has ended."""
    run("ip", "link", "delete", addresses.link, check=False)


def cut(processes: Processes, node: str) -> None:
    """Pull a node's cable."""
    processes.run("ip", "link", "set", node, "down")


def mend(processes: Processes, node: str) -> None:
    processes.run("ip", "link", "set", node, "up")
