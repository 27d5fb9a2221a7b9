"""The Docker hosts that the tests run on are real ones, can be broken in every way, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hosts import programs
from tests.hosts.lot import Hosts
from tests.rig import images, places, system
from tests.rig.left import left, running
from tests.rig.processes import RigError, wait_for

FOREVER = ("--init", "busybox:1", "sleep", "infinity")
"""With a first process that ends when it is told to: nobody has to wait ten seconds for it."""


@pytest.fixture
def first(hosts):
    """The first of the shared hosts, as it was before when the test is over."""
    yield hosts.hosts[0]
    for host in hosts.hosts:
        host.clean()


def state(host, container):
    return json.loads(host.docker("inspect", container))[0]["State"]


@pytest.fixture
def image(tmp_path):
    """One that no host has."""
    layer = images.Layer()
    layer.file("new", os.urandom(8).hex().encode())
    return images.write(tmp_path / "image", [layer], {}, system.standard()[system.BUSYBOX])


# Where they are reached


def test_two_hosts_run_a_container_each_and_know_nothing_of_the_other(hosts, first):
    second = hosts.hosts[1]
    for host in (first, second):
        assert host.docker("run", "--name", "same", "--network=host", "busybox:1", "hostname") == f"{host.name}\n"
    first.docker("rm", "same")
    assert second.docker("ps", "--all", "--format", "{{.Names}}") == "same\n"


def test_an_image_with_bash_and_python_is_there(first):
    said = first.docker("run", "penstock-test:1", "bash", "-c", "python -c 'print(6 * 7)'")
    assert said == "42\n"


def test_a_published_port_is_reached_from_this_machine_and_from_the_other_host(hosts, first):
    first.docker("run", "--detach", "--init", "--publish=8080:80", "busybox:1", "httpd", "-f", "-h", "/etc")
    fetch = ("wget", "-q", "-O", "-", f"http://{first.address}:8080/group")
    assert "nogroup" in hosts.hosts[1].docker("run", "busybox:1", *fetch)
    assert "nogroup" in subprocess.run(["busybox", *fetch], capture_output=True, text=True).stdout


def tls(host, certificates, *asked):
    """What the engine says to one who comes by TCP with these certificates."""
    command = [programs.DOCKER, "--tlsverify", "--host", host.tcp, *(asked or ("info", "--format", "{{.Name}}"))]
    environ = {"DOCKER_CERT_PATH": str(certificates)}
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_an_engine_is_reached_over_tls_by_those_who_may(hosts, first):
    assert tls(first, hosts.keys.client).stdout == "host-1\n"
    refused = tls(first, hosts.keys.stranger, "ps")
    assert refused.returncode != 0
    # Which of the two Docker's client says depends on whether it had written all before it was told.
    assert "bad certificate" in refused.stderr or "connection reset by peer" in refused.stderr


def dial(hosts, host, *options):
    """What the engine says to one who comes by ssh."""
    ping = b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n"
    command = ["ssh", "-F", hosts.keys.config, *options, host.name, "docker", "system", "dial-stdio"]
    return subprocess.run(command, input=ping, capture_output=True)


def test_an_engine_is_reached_over_ssh_by_those_who_may(hosts, first, tmp_path):
    assert dial(hosts, first).stdout.endswith(b"\r\n\r\nOK")
    another = tmp_path / "another"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", another], check=True)
    shutil.copyfile(hosts.keys.config, tmp_path / "config")
    config = (tmp_path / "config").read_text().replace(str(hosts.keys.user_key), str(another))
    (tmp_path / "config").write_text(config)
    assert b"Permission denied (publickey" in dial(hosts, first, "-F", tmp_path / "config").stderr


# The registries


def test_every_host_can_pull_what_was_pushed(hosts, first, image):
    name = hosts.push(image, "team/thing:1")
    for host in hosts.hosts:
        assert name not in host.docker("images", "--format", "{{.Repository}}:{{.Tag}}")
        assert "Downloaded newer image" in host.docker("pull", name)
        assert len(host.docker("run", name, "cat", "/new")) == 16
        host.clean()
        host.docker("rmi", name)


def test_the_open_registry_stands_for_docker_hub(hosts, first, image):
    hosts.push(image, "library/no-such-image:7")
    assert "docker.io/library/no-such-image:7" in first.docker("pull", "no-such-image:7")
    first.docker("rmi", "no-such-image:7")


def test_the_private_registry_wants_a_login(hosts, first, image):
    name, second = hosts.push(image, "team/secret:1", private=True), hosts.hosts[1]
    with pytest.raises(RigError, match="no basic auth credentials"):
        second.docker("pull", name)
    user, password = hosts.private_registry.login
    with pytest.raises(RigError, match="401 Unauthorized"):
        second.docker("login", "--username", user, "--password", "wrong", hosts.private_registry.address)
    second.docker("login", "--username", user, "--password", password, hosts.private_registry.address)
    assert "Downloaded newer image" in second.docker("pull", name)
    second.docker("logout", hosts.private_registry.address)
    second.docker("rmi", name)


def test_a_registry_that_is_down_refuses_and_comes_back_with_its_images(hosts, registry, first, image):
    name = hosts.push(image, "team/waits:1")
    registry.stop()
    with pytest.raises(RigError, match="connection refused"):
        first.docker("pull", name)
    registry.start()
    first.docker("pull", name)
    first.docker("rmi", name)


def test_a_registry_that_stands_still_keeps_whoever_pulls_waiting(hosts, registry, first, image):
    name = hosts.push(image, "team/hangs:1")
    registry.pause()
    with subprocess.Popen([programs.DOCKER, "--host", first.unix, "pull", "--quiet", name]) as pulling:
        with pytest.raises(subprocess.TimeoutExpired):
            pulling.wait(1)
        registry.resume()
        assert pulling.wait(60) == 0
    first.docker("rmi", name)


# What befalls them


def test_an_engine_that_is_restarted_ends_its_containers(first):
    first.docker("run", "--detach", "--name=runs", *FOREVER)
    first.restart()
    assert state(first, "runs")["Status"] == "exited"


def test_one_with_live_restore_keeps_them(first):
    first.configure(live_restore=True)
    wait_for("the new setting", lambda: first.docker("info", "--format", "{{.LiveRestoreEnabled}}") == "true\n")
    first.docker("run", "--detach", "--name=runs", *FOREVER)
    before = state(first, "runs")
    first.restart()
    assert state(first, "runs") == before
    first.kill()
    first.start()
    assert state(first, "runs") == before
    first.configure(live_restore=False)


def test_when_an_engine_is_killed_its_containers_run_on_until_it_is_back(first):
    first.docker("run", "--detach", "--name=runs", *FOREVER)
    process = state(first, "runs")["Pid"]
    first.kill()
    with pytest.raises(RigError, match="Cannot connect to the Docker daemon"):
        first.docker("ps")
    assert "sleep" in first.processes.run("cat", f"/proc/{process}/cmdline")
    first.start()
    assert state(first, "runs")["Status"] == "exited"


def test_an_engine_that_stands_still_answers_when_it_goes_on(first):
    first.pause()
    with subprocess.Popen([programs.DOCKER, "--host", first.unix, "ps"], stdout=subprocess.DEVNULL) as asking:
        with pytest.raises(subprocess.TimeoutExpired):
            asking.wait(1)
        first.resume()
        assert asking.wait(60) == 0


@pytest.mark.parametrize("live_restore", [False, True])
def test_a_reboot_ends_every_container_and_keeps_what_they_wrote(hosts, first, live_restore):
    first.configure(live_restore=live_restore)
    write = ("sh", "-c", "echo kept > /data/file; sleep infinity")
    first.docker("run", "--detach", "--name=runs", "--volume=data:/data", "busybox:1", *write)
    wait_for("what it writes", lambda: first.docker("exec", "runs", "cat", "/data/file") == "kept\n")
    first.reboot()
    assert state(first, "runs")["Status"] == "exited"
    assert first.docker("run", "--volume=data:/data", "busybox:1", "cat", "/data/file") == "kept\n"
    assert tls(first, hosts.keys.client).stdout == "host-1\n"
    assert dial(hosts, first).stdout.endswith(b"OK")
    first.configure(live_restore=False)


def test_a_host_without_its_cable_is_not_reached_and_works_on(hosts, first):
    first.cut()
    lost = dial(hosts, first, "-o", "ConnectTimeout=1")
    assert b"Connection timed out" in lost.stderr or b"No route to host" in lost.stderr
    assert tls(hosts.hosts[1], hosts.keys.client).stdout == "host-2\n"
    assert first.docker("run", "busybox:1", "echo", "still here") == "still here\n"
    first.mend()
    assert tls(first, hosts.keys.client).stdout == "host-1\n"


def test_a_disk_can_be_full_and_have_room_again(own_hosts, image):
    host = own_hosts(number=1, disk_mb=64, images=("busybox:1",)).hosts[0]
    host.fill()
    for filling in (lambda: host.docker("run", "busybox:1", "true"), lambda: host.load(image, "more:1")):
        with pytest.raises(RigError, match="no space left on device"):
            filling()
    host.empty()
    host.load(image, "more:1")
    assert len(host.docker("run", "more:1", "cat", "/new")) == 16


def test_a_disk_that_is_this_machines_is_not_filled(first):
    with pytest.raises(RigError, match="no disk of its own"):
        first.fill()


def test_each_host_has_files_of_its_own_to_give_to_containers(hosts, first):
    (first.home / "srv/dataset").mkdir()
    show = ("run", "--volume=/srv:/srv", "busybox:1", "ls", "/srv")
    assert first.docker(*show) == "dataset\n"
    assert hosts.hosts[1].docker(*show) == ""
    (first.home / "srv/dataset").rmdir()


# Up and down


@pytest.fixture
def name(hosts):
    """Of hosts that are brought up and ended by the test."""
    name = f"end-{os.getpid()}"
    with Hosts.used(name):
        yield name
    Hosts.down(name)


def busy(name):
    """Hosts on which something runs, in a network of its own, with a volume."""
    lot = Hosts.up(name, temporary=True, images=("busybox:1",))
    for host in lot.hosts:
        host.docker("network", "create", "own")
        host.docker("run", "--detach", "--network=own", "--volume=data:/data", "--publish=80", *FOREVER)
    return lot


def test_what_was_killed_is_started_again_by_the_next_up(name):
    lot = busy(name)
    lot.hosts[0].turn_off()
    lot.hosts[1].kill()
    lot.hosts[1].cut()
    lot.registry.stop()
    lot.private_registry.pause()
    again = Hosts.up(name, temporary=True)
    for host in again.hosts:
        assert tls(host, again.keys.client).stdout == f"{host.name}\n"
    with pytest.raises(RigError, match="is up with 2 hosts"):
        Hosts.up(name, 3)


def test_hosts_that_are_up_are_listed_and_say_where_they_are_reached(name):
    def said(*arguments):
        asked = [sys.executable, "-m", "tests.hosts", *arguments]
        return subprocess.run(asked, capture_output=True, text=True, cwd=Path(__file__).parents[2])

    not_up = said("env", "--name", name)
    assert (not_up.returncode, not_up.stderr.startswith(f"hosts: {name} is not up")) == (1, True)
    assert said("up", "--name", name, "--hosts", "1").returncode == 0
    assert f"{name}\tup" in said("list").stdout.splitlines()
    variables = dict(line.split("=", 1) for line in said("env", "--name", name).stdout.splitlines())
    host = Hosts.find(name).hosts[0]
    assert (variables["HOST1_TCP"], variables["HOST1_SSH"]) == (host.tcp, host.ssh)
    assert said("down", "--name", name).returncode == 0
    assert f"{name}\tup" not in said("list").stdout


def test_down_leaves_nothing_and_may_be_repeated(name):
    busy(name)
    Hosts.down(name)
    Hosts.down(name)
    assert left(places.HOSTS + name) == []


def test_a_crash_at_any_time_leaves_what_the_next_up_or_down_clears(name):
    for seconds in (0.3, 0.8, 1.5):
        starter = subprocess.Popen([sys.executable, "-m", "tests.hosts", "up", "--name", name])
        time.sleep(seconds)  # There is no event to wait for: any instant will do.
        starter.kill()
        starter.wait()
    lot = busy(name)
    os.kill(lot.processes.holder, signal.SIGKILL)
    wait_for("its first process to end", lambda: lot.processes.holder is None)
    assert running(places.HOSTS + name) == []
    Hosts.down(name)
    assert left(places.HOSTS + name) == []
