"""Where SQLite must not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import StartRefused
from penstock.store import connections

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/ann/local\\040disk ext4 rw 0 0
me@host:/ /mnt/ssh fuse.sshfs rw 0 0
/dev/sdb1 /mnt/usb fuseblk rw 0 0
/dev/vdc /over xfs rw 0 0
//server/share /over cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/penstock", "ext4"),
        ("/tmp/x", "tmpfs"),
        ("/home", "nfs4"),
        ("/home/ann/.local/share/penstock", "nfs4"),
        ("/home/ann/local disk/penstock", "ext4"),
        ("/homes/ann", "ext4"),
        ("/over/x", "cifs"),
        ("/mnt/ssh/x", "fuse.sshfs"),
    ],
)
def test_the_deepest_and_last_mount_says_what_a_directory_is_on(path: str, kind: str):
    assert connections.kind_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("path", ["/home/ann", "/over/x", "/mnt/ssh/x"])
def test_a_network_file_system_is_refused_with_the_way_out(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(connections, "_MOUNTS", mounts)
    with pytest.raises(StartRefused, match="network file system") as refused:
        connections.refuse_network(Path(path))
    assert "database_url" in (refused.value.hint or "")


@pytest.mark.parametrize("path", ["/tmp", "/mnt/usb", "/home/ann/local disk"])
def test_a_local_disk_is_taken(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(connections, "_MOUNTS", mounts)
    connections.refuse_network(Path(path))
