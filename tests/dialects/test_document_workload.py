"""kind Workload: each key, what it becomes, and what is said of one that is wrong."""

from __future__ import annotations

import pytest

from penstock.domain.states import State
from penstock.domain.workloads import UNLIMITED, Array, Port, Requests, Resources, Selectors
from tests.dialects.documents import WORKLOAD, problem_of, spec_of, under_workload, workload_of

GIB = 1024**3
HOW_IT_ENDED = (State.EXITED, State.CRASHED, State.STOPPED, State.STUCK)


def test_the_group_is_the_documents():
    assert workload_of(WORKLOAD.replace("small}", "small, group: vision}")).group == "vision"


@pytest.mark.parametrize("driver", ["pwm.docker", "pwm.nvidiadocker"])
def test_both_drivers_say_the_same(driver):
    assert spec_of(WORKLOAD.replace("pwm.docker", driver)) == spec_of(WORKLOAD)


# selectors


@pytest.mark.parametrize(
    ("selectors", "asked"),
    [
        ("", Resources(cpus_milli=1000, exclusive_cpus=True)),
        ("selectors: {}", Resources(cpus_milli=1000, exclusive_cpus=True)),
        ("selectors: {node: {name: pwm.all}}", Resources(cpus_milli=1000, exclusive_cpus=True)),
        ("selectors: {cpu: {}}", Resources(cpus_milli=1000, exclusive_cpus=True)),
        ("selectors: {cpu: {count: 4}}", Resources(cpus_milli=4000, exclusive_cpus=True)),
        ("selectors: {cpu: {count: 4, exclusive: false}}", Resources(cpus_milli=4000)),
        ("selectors: {cpu: {count: 500m, exclusive: false}}", Resources(cpus_milli=500)),
        ("selectors: {cpu: {count: 0}}", Resources()),
        ("selectors: {gpu: {product_name: pwm.all}}", Resources(gpus=1)),
        ("selectors: {gpu: {count: 2}}", Resources(gpus=2)),
        ("selectors: {gpu: {product_name: [A10, L4]}}", Resources(gpus=1, gpu_products=("A10", "L4"))),
        (
            "selectors: {gpu: {product_name: A10}, cpu: {}}",
            Resources(gpus=1, gpu_products=("A10",), cpus_milli=1000, exclusive_cpus=True),
        ),
    ],
)
def test_gpus_and_cpus_are_selected(selectors, asked):
    assert spec_of(under_workload(selectors)).resources == asked.model_copy(update={"image": "ubuntu"})


def test_a_node_a_cpu_product_and_labels_are_selected():
    spec = spec_of(
        under_workload("selectors: {node: {name: gpu01.lab}, cpu: {product_name: Xeon}, label: {rack: a, ssd: ''}}")
    )
    assert spec.selectors == Selectors(node="gpu01.lab", cpu_product="Xeon", labels={"rack": "a", "ssd": ""})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "selectors: {gpus: {count: 1}}",
            "selectors.gpus: is not supported: no field of that name is known; did you mea",
        ),
        ("selectors: {gpu: {product: A10}}", "selectors.gpu.product: is not supported: no field of that name is known"),
        ("selectors: {gpu: {count: 1.5}}", "selectors.gpu.count: must be a whole number from 0 to 1,000, not '1.5'"),
        ("selectors: {gpu: {product_name: A10, count: 0}}", "selectors.gpu: chooses a GPU product and asks for no GPU"),
        ("selectors: {gpu: {product_name: '!'}}", "selectors.gpu.product_name: '!' names no GPU product"),
        ("selectors: {gpu: {product_name: []}}", "selectors.gpu.product_name: must name 1 to 50 products"),
        (
            "selectors: {cpu: {count: 1.5}}",
            "selectors.cpu.count: is not a whole number of CPUs, and these are its own while it runs (write 'exclusiv",
        ),
        ("selectors: {cpu: {count: -1}}", "selectors.cpu.count: '-1' is not a number of CPUs"),
        ("selectors: {cpu: {exclusive: maybe}}", "selectors.cpu.exclusive: must be true or false, not 'maybe'"),
        ("selectors: {node: gpu01}", "selectors.node: must be a mapping, not a single text"),
        ("selectors: {node: {name: GPU}}", "selectors.node.name: 'GPU' is not a node's name"),
        ("selectors: {label: {a: b c}}", "selectors.label.a: 'b c' is not a label's value"),
        ("selectors: {label: [a]}", "selectors.label: must be lines of 'key: value', not a list"),
    ],
)
def test_a_wrong_selector_is_said(line, said):
    problem = problem_of(under_workload(line))
    assert problem.startswith("d.yaml:7:")
    assert f" spec.{said}" in problem


# image and config


def test_a_registry_stands_before_the_image():
    text = WORKLOAD.replace("{image: ubuntu}", "{image: 'lab/torch:2', registry: 'registry.lab:5000/'}")
    assert spec_of(text).resources.image == "registry.lab:5000/lab/torch:2"


@pytest.mark.parametrize(
    ("cmd", "run"),
    [
        ("cmd: /bin/bash", ("/bin/bash",)),
        ("cmd: python train.py --name 'two words' \"$HOME\"", ("python", "train.py", "--name", "two words", "$HOME")),
        ("cmd: [python, train.py, 1, '']", ("python", "train.py", "1", "")),
        ("cmd:", None),
        ("startMode: -itd", None),
    ],
)
def test_a_command_is_split_as_a_shell_would(cmd, run):
    assert spec_of(under_workload("config:", f"  {cmd}")).run == run


@pytest.mark.parametrize(
    ("mode", "terminal"), [("-itd", True), ("-it", True), ("t", True), ("-i", True), ("-d", False), ("d", False)]
)
def test_a_start_mode_gives_a_terminal(mode, terminal):
    assert spec_of(under_workload(f"config: {{startMode: {mode}}}")).terminal is terminal


@pytest.mark.parametrize(
    "env",
    ["{A: 1, B: b=c}", "[A=1, B=b=c]", "[{name: A, value: 1}, {name: B, value: b=c}]", "[A=1, {name: B, value: b=c}]"],
)
def test_variables_are_written_in_three_ways(env):
    assert spec_of(under_workload(f"config: {{env: {env}}}")).envs == {"A": "1", "B": "b=c"}


@pytest.mark.parametrize("labels", ["{team: vision}", "[{name: team, value: vision}]", "[team=vision]"])
def test_labels_are_too(labels):
    assert spec_of(under_workload(f"config: {{labels: {labels}}}")).labels == {"team": "vision"}


@pytest.mark.parametrize(
    "ports",
    [
        "config: {exposedPorts: [{name: 8888/tcp, value: {}}, {name: 53/udp}]}",
        "config: {exposedPorts: {8888/tcp: {}, 53/udp: }}",
        "config: {ports: [8888, 53/udp]}",
        "config: {ports: 8888, exposedPorts: 53/UDP}",
        "network: {ports: [{port: 8888}, {port: 53, protocol: udp}]}",
        "network: {ports: [8888, 53/udp]}",
    ],
)
def test_ports_are_written_in_several_ways(ports):
    found = spec_of(under_workload(ports)).ports
    assert set(found) == {Port(port=8888), Port(port=53, protocol="udp")}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("config: {cmd: 'echo \"a'}", "config.cmd: a quote is opened and never closed (write a list of texts)"),
        ("config: {cmd: ' '}", "config.cmd: is empty (leave it out for the image's own command)"),
        ("config: {cmd: []}", "config.cmd: has 0 items; 1 to 1,000 can be"),
        ("config: {cmd: {a: b}}", "config.cmd: must be a text, not a mapping"),
        (
            "config: {startMode: -x}",
            "config.startMode: '-x' is not a start mode: the letters i and t for a terminal, and",
        ),
        ("config: {env: [A]}", "config.env[0]: 'A' has no value (write NAME=value)"),
        ("config: {env: {A: }}", 'config.env.A: has no value (write A: "")'),
        ("config: {env: [{name: A}]}", "config.env[0].value: is missing (write 'value: \"\"' for an empty one)"),
        ("config: {env: [{name: A, value: }]}", "config.env[0].value: is missing"),
        ("config: {labels: [{name: a}]}", "config.labels[0].value: is missing"),
        ("config: {env: {1A: b}}", "config.env.1A: '1A' is not a variable's name"),
        ("config: {env: [A=1, A=2]}", "config.env[1]: 'A' appears twice (say it once)"),
        ("config: {env: [{value: 1}]}", "config.env[0].name: is missing"),
        ("config: {env: A=1}", "config.env: must be a list, not a single text"),
        ("config: {labels: {penstock.dev/x: a}}", "config.labels.penstock.dev/x: is one of Penstock's own labels"),
        ("config: {labels: {'a b': c}}", "config.labels.a b: 'a b' is not a label's name"),
        ("config: {ports: [70000]}", "config.ports[0]: '70000' is not a port: 1 to 65,535, tcp or udp"),
        ("config: {ports: [80, 80/tcp]}", "config.ports[1]: the port 80 appears twice"),
        (
            "config: {exposedPorts: {80/tcp: 8080}}",
            "config.exposedPorts.80/tcp: is not supported: no port is published on a host (remove it; penstock",
        ),
        (
            "config: {hostConfig: {Privileged: true}}",
            "config.hostConfig: is not supported: a workload is kept apart from",
        ),
        (
            "config: {workingDir: /a}",
            "config.workingDir: is not supported: a directory is said as in a task (write spec.",
        ),
        (
            "config: {stopSignal: INT}",
            "config.stopSignal: is not supported: Penstock has nothing for it (remove it; supp",
        ),
        (
            "network: {name: host}",
            "network.name: is not supported: each group has a network of its own, and its workloads",
        ),
        (
            "network: {ports: [{port: 80, hostPort: 80}]}",
            "network.ports[0].hostPort: is not supported: no port is published",
        ),
        ("network: {ports: [{protocol: tcp}]}", "network.ports[0].port: is missing"),
        ("network: {ports: [{port: 80, protocol: sctp}]}", "network.ports[0].protocol: must be tcp or udp, not 'sctp'"),
        ("image_id: x", "image_id: is not supported: no field of that name is known; did you mean 'image'?"),
        ("cmd: a", "cmd: is not supported: a command is part of config (write it under 'config')"),
        ("wants: STOP", "wants: is not supported: the server wrote it (remove it)"),
    ],
)
def test_what_is_wrong_in_config_and_network_is_said(line, said):
    problem = problem_of(under_workload(line))
    assert problem.startswith("d.yaml:7:")
    assert f" spec.{said}" in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            WORKLOAD.replace("  driver: pwm.docker\n", ""),
            "d.yaml:5:3: spec.driver: is missing (write 'driver: pwm.docker')",
        ),
        (
            WORKLOAD.replace("pwm.docker", "lxc"),
            "d.yaml:5:11: spec.driver: must be pwm.docker or pwm.nvidiadocker, not 'lx",
        ),
        (
            WORKLOAD.replace("{image: ubuntu}", "ubuntu"),
            "d.yaml:6:10: spec.image: must be a mapping, not a single text (wri",
        ),
        (WORKLOAD.replace("{image: ubuntu}", "{image: '!'}"), "d.yaml:6:18: spec.image.image: '!' is not an image"),
        (WORKLOAD.replace("{image: ubuntu}", "{image: ''}"), "d.yaml:6:18: spec.image.image: '' is not an image"),
        (WORKLOAD.replace("{image: ubuntu}", "{registry: a}"), "d.yaml:6:10: spec.image.image: is missing"),
        (
            WORKLOAD.replace("{image: ubuntu}", "{image: a, registry: 'https://b'}"),
            "d.yaml:6:31: spec.image.registry: 'https://b' is not a registry: a host, and its port",
        ),
        (WORKLOAD.replace("  image: {image: ubuntu}\n", ""), "d.yaml:5:3: spec: says neither an image nor a command"),
    ],
)
def test_what_a_workload_must_say(text, said):
    assert problem_of(text).startswith(said)


def test_the_groups_own_network_says_what_is_so_anyway():
    text = under_workload("network: {name: vision}").replace("small}", "small, group: vision}")
    assert spec_of(text) == spec_of(WORKLOAD)


def test_penstocks_own_variables_stay_penstocks():
    task = workload_of(under_workload("config: {env: {NODE_RANK: 7}}")).task
    assert task.notices == ("spec.config.env: Penstock sets NODE_RANK itself, in place of what is said here",)


# the keys of a task


def test_a_tasks_keys_mean_the_same():
    spec = spec_of(
        under_workload(
            "array: {count: 10, parallelism: 2}",
            "after: prepare",
            "queue: gpus",
            "workdir: ./code",
            "setup: pip install x",
            "run: python train.py",
            "resources: {memory: 8Gi, disk_size: 20Gi, requests: {memory: 4Gi}}",
            "max_duration: 12h",
            "stop_grace: 1m",
            "retries: unlimited",
            "requeue: 2",
            "ttl: 1h",
            "priority: -5",
            "idle_timeout: 30m",
        )
    )
    assert spec.array == Array(count=10, parallelism=2)
    assert (spec.after, spec.queue, spec.workdir) == (("prepare",), "gpus", "./code")
    assert (spec.setup, spec.run) == ("pip install x", "python train.py")
    assert spec.resources.memory_bytes == 8 * GIB
    assert spec.resources.requests == Requests(memory_bytes=4 * GIB)
    assert (spec.max_duration, spec.stop_grace, spec.ttl, spec.idle_timeout) == (43_200, 60, 3600, 1800)
    assert (spec.retries, spec.requeue, spec.priority) == (UNLIMITED, 2, -5)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["run: a", "config: {cmd: b}"],
            "config.cmd: says the command again: there are 'spec.run' and 'spec.config.cmd'",
        ),
        (["setup: a", "config: {cmd: b}"], "setup: cannot be there when 'spec.config.cmd' is a program and its argum"),
        (["setup: a"], "setup: cannot be there without 'run': an image's own command has none before it"),
        (["array: 2", "num_nodes: 2"], "array: cannot be together with 'num_nodes: 2'"),
        (["restart: always", "retries: 1"], "retries: cannot be counted"),
        (
            ["workdir: .", "volumes: [{name: a, target: /workdir}]"],
            "volumes[0]: '/workdir' is where the code of a relat",
        ),
        (
            ["resources: {memory: 1Gi}", "volumes: [{target: /a, size: 2Gi, medium: memory}]"],
            "volumes[0].size: is more memory than 'resources.memory' allows",
        ),
        (["resources: {cpus: 2}"], "resources.cpus: is not supported: CPUs are selected (write selectors.cpu.count)"),
        (["resources: {gpus: 2}"], "resources.gpus: is not supported: GPUs are selected (write selectors.gpu)"),
        (["max_duration: 12"], "max_duration: '12' is not a duration (12s, 12m or 12h)"),
        (["priority: high"], "priority: must be a whole number from -1,000 to 1,000, not 'high'"),
    ],
)
def test_what_is_wrong_with_them_is_said(lines, said):
    assert f" spec.{said}" in problem_of(under_workload(*lines))


def test_what_is_wrong_beyond_the_text_is_said_at_the_documents_own_keys():
    task = workload_of(
        under_workload(
            "selectors: {gpu: {count: 2}, node: {name: a}}",
            "resources: {memory: 1Gi}",
            "queue: q",
            "volumes: [{name: a, target: /a/}]",
        )
    ).task
    assert (task.where("run"), task.field("run")) == ("d.yaml:5:3", "spec.config.cmd")
    assert task.field("resources", "accelerators") == "spec.selectors.gpu"
    assert (task.where("resources", "memory"), task.field("resources", "memory")) == (
        "d.yaml:8:23",
        "spec.resources.memory",
    )
    assert task.field("selectors", "node") == "spec.selectors.node.name"
    assert task.field("volumes", "/a") == "spec.volumes[0]"
    assert (task.where("queue"), task.field("queue")) == ("d.yaml:9:10", "spec.queue")
    assert task.field("resources", "image_id") == "spec.image.image"
