"""Where in a job a volume may appear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.paths import NotAMountPath, mount_path


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/data", "/data"),
        ("/data/", "/data"),
        ("//data///x/.", "/data/x"),
        ("/tmp", "/tmp"),
        ("/home", "/home"),
        ("/home/me/data", "/home/me/data"),
        ("/opt/models", "/opt/models"),
        ("/usr/datasets", "/usr/datasets"),
        ("/usr/local/data", "/usr/local/data"),
        ("/var/lib/data", "/var/lib/data"),
        ("/dev/shm", "/dev/shm"),
        ("/library", "/library"),
        ("/processed", "/processed"),
        ("/a b/ü", "/a b/ü"),
        ("/...", "/..."),
    ],
)
def test_any_path_but_the_systems_own_has_one_spelling(written, path):
    assert mount_path(written) == path


SYSTEMS_OWN = (
    "/ // /. /proc /proc/1 /sys /sys/fs/cgroup /dev /dev/sda /dev/shmx /run /run/user/0 /var/run /usr /usr/ /usr/bin "
    "/usr/lib/python3 /usr/local /bin /bin/x /sbin /lib /lib64 /libx32/a /etc /etc/ssl /boot /var"
)


@pytest.mark.parametrize("path", SYSTEMS_OWN.split())
def test_the_systems_own_is_refused(path):
    with pytest.raises(NotAMountPath, match="belongs to the system"):
        mount_path(path)


@pytest.mark.parametrize("path", ["/data/../etc", "/..", "/a/.."])
def test_a_path_that_climbs_is_refused(path):
    with pytest.raises(NotAMountPath, match=r"has '\.\.' in it"):
        mount_path(path)


@pytest.mark.parametrize("path", ["", "data", "./data", "~/data", "../data", "C:\\data"])
def test_a_path_must_be_absolute(path):
    with pytest.raises(NotAMountPath, match="not an absolute path"):
        mount_path(path)


def test_a_relative_path_gets_the_absolute_one_suggested():
    with pytest.raises(NotAMountPath) as caught:
        mount_path("data")
    assert caught.value.hint == "/data"


@pytest.mark.parametrize("path", ["/a\0b", "/a\nb", "/\ud800", "/" + "x" * 256, "/x" * 3000])
def test_a_path_no_system_could_show_is_refused_shortly(path):
    with pytest.raises(NotAMountPath) as caught:
        mount_path(path)
    assert len(str(caught.value)) < 200


@given(st.text(alphabet="/.abdevshmprocun ", max_size=30))
def test_the_one_spelling_is_stable_and_never_climbs(text):
    try:
        path = mount_path(f"/{text}")
    except NotAMountPath:
        return
    assert mount_path(path) == path
    assert not {"..", ".", ""} & set(path.split("/")[1:])
