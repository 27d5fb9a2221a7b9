"""Checks of `penstock doctor`: is everything installed, and does it really work?"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.domain.nodes import Gpu
from penstock.engines.local.cgroups import CgroupLimits
from penstock.engines.local.gpus import lock_directory_check
from penstock.engines.local.spec.identity import find_setpriv
from penstock.engines.local.spec.sandbox import empty_sandbox, setpriv_prefix
from penstock.engines.local.spec.script import DEFAULT_PATH
from penstock.engines.shared.processes import read_text
from penstock.errors import Unavailable
from penstock.settings import Settings
from penstock.wire.server import Check

INSTALL_BWRAP = "sudo apt-get install -y bubblewrap"
ALLOW_BWRAP = (
    "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\n"
    "profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }\\n'"
    " | sudo tee /etc/apparmor.d/bwrap && sudo systemctl reload apparmor"
)
NAMESPACES = {"kernel.unprivileged_userns_clone": "1", "user.max_user_namespaces": "28633"}
"""Kernel settings that allow user namespaces; not every kernel has both."""
OR_NONE = 'or set sandbox = "none": jobs then see the whole machine'
NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "fuse.glusterfs", "lustre"}


def find_bwrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise Unavailable("bubblewrap is not installed; jobs need it for their sandbox.", hint=INSTALL_BWRAP)
    return found


def probe_sandbox(settings: Settings) -> None:
    """Run nothing in a sandbox, in each way this server would; raises Unavailable with the fix."""
    if settings.sandbox == "none":
        _try_without(settings)
        return
    bwrap = find_bwrap()
    if os.geteuid() != 0:
        _try(empty_sandbox(bwrap), None)
        return
    uid, gid = _root_account(settings)
    prefix = setpriv_prefix(find_setpriv(), uid, gid, [])
    _try(empty_sandbox(bwrap, prefix), None)
    if settings.mode == "system":
        _try(empty_sandbox(bwrap), (uid, gid))


def _try(argv: Sequence[str], who: tuple[int, int] | None) -> None:
    user, group = who or (None, None)
    done = subprocess.run(
        argv,
        user=user,
        group=group,
        extra_groups=[] if who else None,
        env={"PATH": DEFAULT_PATH},
        capture_output=True,
        check=False,
        timeout=30,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"code {done.returncode}"
        raise Unavailable(f"The sandbox does not work here: {said}", hint=f"{_remedy()} ({OR_NONE})")


def _try_without(settings: Settings) -> None:
    """Without a sandbox, root's work runs as another account, which must be able to enter the data directory."""
    if os.geteuid() != 0:
        return
    uid, gid = _root_account(settings)
    enter = ["/bin/sh", "-c", 'cd "$0"', str(settings.data_dir / "runs")]
    if subprocess.run(enter, user=uid, group=gid, extra_groups=[], capture_output=True, check=False).returncode:
        raise Unavailable(
            f"Without a sandbox, jobs run as '{settings.root_account}', which cannot enter {settings.data_dir}.",
            hint="set data_dir to a directory that this account can enter, such as /var/lib/penstock",
        )


def _remedy() -> str:
    if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return ALLOW_BWRAP
    there = [f"{key}={value}" for key, value in NAMESPACES.items() if _sysctl(key.replace(".", "/"))]
    return f"sudo sysctl -w {' '.join(there)}" if there else "use a kernel that has user namespaces"


def _sysctl(name: str) -> str:
    return (read_text(f"/proc/sys/{name}") or "").strip()


def _root_account(settings: Settings) -> tuple[int, int]:
    try:
        found = pwd.getpwnam(settings.root_account)
    except KeyError:
        raise Unavailable(
            f"There is no account '{settings.root_account}'.", hint="set root_account to one that exists"
        ) from None
    if found.pw_uid == 0:
        raise Unavailable("root_account must not be root.", hint='for example root_account = "nobody"')
    return found.pw_uid, found.pw_gid


def check_all(settings: Settings, limits: CgroupLimits, gpus: Sequence[Gpu]) -> list[Check]:
    locks = lock_directory_check(settings.gpu_lock_dir) if gpus else None
    return [_sandbox(settings), _limits(limits), _gpus(gpus), _local_disk(settings), *([locks] if locks else [])]


def _sandbox(settings: Settings) -> Check:
    began = time.perf_counter()
    try:
        probe_sandbox(settings)
    except Unavailable as error:
        return Check(name="sandbox", ok=False, detail=error.message, fix=error.hint)
    if settings.sandbox == "none":
        detail = 'sandbox = "none": jobs are plain processes and see the whole machine'
        return Check(name="sandbox", ok=False, required=False, detail=detail, fix='set sandbox = "bubblewrap"')
    took = (time.perf_counter() - began) * 1000
    return Check(name="sandbox", ok=True, detail=f"bubblewrap works ({took:.0f} ms)")


def _limits(limits: CgroupLimits) -> Check:
    if limits.enforced:
        detail = f"CPU and memory limits are enforced by control groups v{limits.version}"
        return Check(name="limits", ok=True, required=False, detail=detail)
    return Check(
        name="limits",
        ok=False,
        required=False,
        detail="CPU and memory limits are advisory: no control group can be written here",
        fix="start the server with: systemd-run --user --scope -p Delegate=yes penstock server start",
    )


def _gpus(gpus: Sequence[Gpu]) -> Check:
    products = sorted({gpu.product for gpu in gpus})
    shown = ", ".join(f"{sum(gpu.product == product for gpu in gpus)} × {product}" for product in products)
    return Check(name="gpus", ok=True, required=False, detail=shown or "none seen (no NVIDIA driver)")


def _local_disk(settings: Settings) -> Check:
    kind = _file_system(settings.data_dir.resolve())
    local = kind not in NETWORK_FILE_SYSTEMS
    fix = None if local else "set data_dir to a directory on a local disk"
    return Check(name="data_dir", ok=local, detail=f"{settings.data_dir} is on {kind}", fix=fix)


def _file_system(path: Path) -> str:
    """Return the type of the file system a path is on: that of the longest mount point above it."""
    best, kind = "", "an unknown file system"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        above = point == "/" or path == Path(point) or Path(point) in path.parents
        if above and len(point) >= len(best):
            best, kind = point, found
    return kind
