"""`selectors`, `labels`, `ports`, `terminal`, `priority`, `idle_timeout`, `notify`, and volumes of others."""

from __future__ import annotations

import pytest

from penstock.domain.states import State
from penstock.domain.workloads import Mount, Notice, Port, Selectors
from tests.dialects.reading import problems_of, resources_of, spec_of

HOW_IT_ENDED = (State.EXITED, State.CRASHED, State.STOPPED, State.STUCK)


def test_a_node_is_chosen_by_name_product_or_label():
    spec = spec_of("run: a\nselectors: {node: gpu01, cpu_product: Xeon, labels: {rack: a}, spread: true}")
    assert spec.selectors == Selectors(node="gpu01", cpu_product="Xeon", labels={"rack": "a"}, spread=True)
    assert spec_of("run: a\nselectors: {node: pwm.all, cpu_product: pwm.all}").selectors == Selectors()


def test_cpus_may_be_nobody_elses():
    assert spec_of(resources_of(cpus="4", exclusive_cpus="true")).resources.exclusive_cpus
    (problem,) = problems_of(resources_of(cpus="1.5", exclusive_cpus="true"))
    assert "resources.exclusive_cpus: are whole CPUs that nobody else gets meanwhile: say how many" in problem
    assert problems_of(resources_of(exclusive_cpus="true"))


@pytest.mark.parametrize(
    ("ports", "found"),
    [
        ("8888", (Port(port=8888),)),
        ("[8888, 53/udp]", (Port(port=8888), Port(port=53, protocol="udp"))),
        ("[53/tcp, 53/UDP]", (Port(port=53), Port(port=53, protocol="udp"))),
    ],
)
def test_ports_are_numbers_with_or_without_a_protocol(ports, found):
    assert spec_of(f"run: a\nports: {ports}").ports == found


@pytest.mark.parametrize(
    ("notify", "found"),
    [
        ("telegram:12345", (Notice(to="telegram:12345", on=HOW_IT_ENDED),)),
        (
            "[https://example.com/hook, telegram:@lab]",
            (Notice(to="telegram:@lab", on=HOW_IT_ENDED), Notice(to="https://example.com/hook", on=HOW_IT_ENDED)),
        ),
        (
            "{telegram:-100: [RUNNING, EXITED], 'http://hook:8000': CRASHED}",
            (
                Notice(to="telegram:-100", on=(State.RUNNING, State.EXITED)),
                Notice(to="http://hook:8000", on=(State.CRASHED,)),
            ),
        ),
        ("{telegram:1: }", (Notice(to="telegram:1", on=HOW_IT_ENDED),)),
    ],
)
def test_someone_is_told_how_it_ended_or_of_the_states_that_are_named(notify, found):
    assert spec_of(f"run: a\nnotify: {notify}").notify == found


def test_the_rest_is_one_word_each():
    spec = spec_of("run: a\nterminal: true\npriority: -10\nidle_timeout: 30m\nlabels: {team: vision, note: a b}")
    assert (spec.terminal, spec.priority, spec.idle_timeout) == (True, -10, 1800)
    assert spec.labels == {"team": "vision", "note": "a b"}


def test_a_volume_may_be_anothers_made_on_first_use_or_mounted_in_part():
    spec = spec_of(
        "run: a\nvolumes: {/h: {name: home, storage: s}, /d: {name: d, group: pwm.resource, sub_path: a/b/}}"
    )
    assert spec.mounts == (
        Mount(path="/h", volume="home", storage="s"),
        Mount(path="/d", volume="d", group="pwm.resource", sub_path="a/b"),
    )


def test_without_a_command_an_image_runs_its_own():
    assert spec_of("resources: {image_id: ubuntu}").run is None
    (problem,) = problems_of("resources: {image_id: ubuntu}\nsetup: a")
    assert problem.startswith("t.yaml:2:8: setup: cannot be there without 'run'")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("selectors: {gpu: 1}", "selectors.gpu: is not a known key"),
        ("selectors: gpu01", "selectors: must be lines of 'key: value', not a single text (for example 'node: gpu01')"),
        ("selectors: {node: 'a b'}", "selectors.node: 'a b' is not a node's name"),
        ("selectors: {cpu_product: ' '}", "selectors.cpu_product: ' ' names no CPU product"),
        ("selectors: {labels: {a: 'b c'}}", "selectors.labels.a: 'b c' is not a label's value"),
        ("labels: {a: [b]}", "labels.a: must be a text, not a list"),
        ("labels: {penstock.dev/x: b}", "labels.penstock.dev/x: is one of Penstock's own labels"),
        ('labels: {a: "b\\tc"}', "labels.a: must be printable, 1,024 bytes at most"),
        ("ports: 0", "ports: '0' is not a port: 1 to 65,535, tcp or udp (for example 8888, or 53/udp)"),
        ("ports: [80, 80]", "ports[1]: the port 80 appears twice"),
        ("ports: 8000-8010", "ports: '8000-8010' is not a port"),
        ("terminal: always", "terminal: must be true or false, not 'always'"),
        ("priority: 1001", "priority: must be a whole number from -1,000 to 1,000, not '1001'"),
        ("idle_timeout: 0s", "idle_timeout: a duration must be more than zero"),
        ("notify: me", "notify: 'me' is not an address one can be told at (for example telegram:12345, or https://"),
        ("notify: {telegram:1: [DONE]}", "notify.telegram:1[0]: 'DONE' is not a state (one of INSERTED"),
        ("notify: [telegram:1, telegram:1]", "notify[1]: 'telegram:1' appears twice (name all the states at once)"),
        ("volumes: {/a: {name: a, sub_path: ..}}", "volumes./a.sub_path: '..' is no directory below another one"),
        ("volumes: {/a: {name: a, group: a b}}", "volumes./a.group: 'a b' is not a group's name"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(line, said):
    problem = problems_of(f"run: a\n{line}")[0]
    assert problem.startswith("t.yaml:2:")
    assert f": {said}" in problem
