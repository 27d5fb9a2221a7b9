"""A disk that is full while the log of a pod is kept on it."""

from __future__ import annotations

from pathlib import Path

from penstock.engines.kubernetes.logs.files import KeptLog, prepare
from penstock.engines.shared.logstore import LogReader
from tests.disks import filled, small_disk

KEPT = b"kept\n" * 4000


def test_what_was_kept_before_stays(place: Path) -> None:
    with small_disk(place, "tmpfs", 4) as disk:
        prepare(disk, 1 << 20, "1Mi")
        log = KeptLog(disk, 0, 1 << 20)
        log.resume("uid", there=True)
        log.write(KEPT, 1.0)
        with filled(disk):
            for second in range(3):
                log.write(b"y" * 5000, 2.0 + second)
        log.write(b"back\n", 9.0)
        log.close()
        reader = LogReader(disk, 0)
        reader.refresh()
        text = reader.read(0)[0]
    assert text.startswith(KEPT)
    assert text.endswith(b"bytes of output could not be kept: the disk was full\nback\n")
