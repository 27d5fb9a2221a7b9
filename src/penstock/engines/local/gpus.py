"""Find GPUs through NVML, measure their load, and lock each one machine-wide."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from penstock.domain.nodes import Gpu, GpuProcess
from penstock.engines.base import DevicesBusy
from penstock.engines.local import layout
from penstock.engines.local.layout import disk_errors
from penstock.engines.local.spec.sandbox import BindMount
from penstock.engines.shared.processes import read_text
from penstock.errors import Unavailable
from penstock.wire.measures import GpuMeasure
from penstock.wire.server import Check

log = logging.getLogger(__name__)
LIBRARY = "libnvidia-ml.so.1"
SHARED_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Whoever may write in the directory of locks can put a link or a pipe there."""
LOCK_PATIENCE = 0.2
"""Seconds in which the lock of a GPU must become free."""
READ_PATIENCE = 3.0
"""Seconds NVML may take. A GPU that has fallen off its bus answers late or never: then nothing is known of any."""


def device_binds(gpus: Sequence[Gpu]) -> list[BindMount]:
    """Show a job the devices of these GPUs, and those every CUDA program needs."""
    if not gpus:
        return []
    names = [*(f"nvidia{gpu.minor}" for gpu in gpus), *SHARED_DEVICES]
    return [BindMount(f"/dev/{name}", f"/dev/{name}", "--dev-bind-try") for name in names]


def lock_gpus(directory: Path, uuids: Sequence[str], held: ExitStack) -> list[int]:
    """Return a descriptor per GPU, open as long as the stack is. The GPU is locked for as long as anyone has it
    open."""
    if not uuids:
        return []
    folder = _make_directory(directory)
    held.callback(os.close, folder)
    found: list[int] = []
    for uuid in uuids:
        with disk_errors(directory / uuid):
            fd = _open(folder, uuid)
        held.callback(os.close, fd)
        if not layout.take_lock(fd, LOCK_PATIENCE):
            raise DevicesBusy([uuid])
        found.append(fd)
    return found


def find_locked(directory: Path, uuids: Sequence[str]) -> list[str]:
    """Return the GPUs that someone holds now, or whose lock cannot be trusted."""
    if not uuids:
        return []
    try:
        folder = _open_directory(directory)
    except FileNotFoundError:
        return []
    except (Unavailable, OSError):
        return list(uuids)
    try:
        return [uuid for uuid in uuids if not _free(folder, uuid)]
    finally:
        os.close(folder)


def _free(folder: int, uuid: str) -> bool:
    try:
        fd = os.open(_lock_name(uuid), os.O_RDONLY | _CAREFUL, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return layout.is_unlocked(fd)


def lock_directory_check(directory: Path) -> Check | None:
    """Check the directory of locks, which is made when the first GPU is locked."""
    try:
        os.close(_open_directory(directory))
    except FileNotFoundError:
        return None
    except Unavailable as error:
        return Check(name="gpu_lock_dir", ok=False, required=False, detail=error.message, fix=error.hint)
    except OSError as error:
        return Check(name="gpu_lock_dir", ok=False, required=False, detail=f"{directory}: {error.strerror}")
    return None


def _make_directory(directory: Path) -> int:
    with disk_errors(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            directory.mkdir()
            folder = _open_directory(directory)
            os.fchmod(folder, 0o1777)
            return folder
        return _open_directory(directory)


def _open_directory(directory: Path) -> int:
    """Open the directory of locks. Its owner could exchange the locks in it, so that must be root or we ourselves; and
    so could anyone who may write in it, unless it is sticky."""
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _untrusted(directory, "is not a directory", f"sudo rm {directory}") from error
        raise
    about = os.fstat(folder)
    if about.st_uid in (0, os.geteuid()) and (not about.st_mode & 0o022 or about.st_mode & stat.S_ISVTX):
        return folder
    os.close(folder)
    why = "can be changed by others than root and this server's account"
    raise _untrusted(directory, why, f"sudo chown root {directory} && sudo chmod 1777 {directory}")


def _untrusted(directory: Path, why: str, fix: str) -> Unavailable:
    return Unavailable(f"The GPUs cannot be locked: {directory} {why}.", hint=fix)


def _lock_name(uuid: str) -> str:
    """The directory is the machine's, and others have their locks there, too."""
    return f"penstock-{uuid}"


def _open(folder: int, uuid: str) -> int:
    """Open a lock, first without O_CREAT: the kernel refuses that on another user's file in a sticky directory."""
    with suppress(FileNotFoundError):
        return os.open(_lock_name(uuid), os.O_RDWR | _CAREFUL, dir_fd=folder)
    fd = os.open(_lock_name(uuid), os.O_RDWR | os.O_CREAT | _CAREFUL, 0o666, dir_fd=folder)
    with suppress(PermissionError):
        os.fchmod(fd, 0o666)
    return fd


class GpuMonitor:
    """The machine's GPUs. NVML is asked in a thread of its own; whoever asks meanwhile gets the same answer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "penstock-nvml")
        self._nvml: Any = None
        self._pending: asyncio.Future[dict[str, GpuMeasure]] | None = None
        self.known: dict[str, Gpu] = {}
        """Every GPU NVML shows, by uuid; none where there is no driver."""

    async def open(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    def _open(self) -> None:
        try:
            ctypes.CDLL(LIBRARY)
        except OSError:
            return
        import pynvml  # type: ignore[import-untyped]

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            log.warning("no GPUs are offered: %s", error)
            return
        self._nvml = pynvml
        self.known = {gpu.uuid: gpu for gpu in map(self._gpu, range(pynvml.nvmlDeviceGetCount()))}

    def _gpu(self, number: int) -> Gpu:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(number)
        return Gpu(
            uuid=self._nvml.nvmlDeviceGetUUID(handle),
            product=self._nvml.nvmlDeviceGetName(handle),
            memory_bytes=self._nvml.nvmlDeviceGetMemoryInfo(handle).total,
            minor=self._nvml.nvmlDeviceGetMinorNumber(handle),
        )

    def close(self) -> None:
        if self._nvml:
            self._thread.submit(self._nvml.nvmlShutdown)
        self._thread.shutdown(wait=False)

    async def read(self) -> dict[str, GpuMeasure]:
        """Return what each GPU does, by uuid; of those that do not answer, what they are."""
        if not self.known:
            return {}
        if self._pending is None or self._pending.done():
            self._pending = asyncio.get_running_loop().run_in_executor(self._thread, self._read)
        done, _ = await asyncio.wait([self._pending], timeout=READ_PATIENCE)
        if not done:
            log.warning("NVML did not answer within %.0f s", READ_PATIENCE)
        return {uuid: _unseen(gpu) for uuid, gpu in self.known.items()} | (self._pending.result() if done else {})

    def _read(self) -> dict[str, GpuMeasure]:
        nvml, found = self._nvml, {}
        try:
            for number in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                if gpu := self.known.get(nvml.nvmlDeviceGetUUID(handle)):
                    found[gpu.uuid] = self._measure(gpu, handle)
        except nvml.NVMLError as error:
            log.warning("a GPU does not answer: %s", error)
        return found

    def _measure(self, gpu: Gpu, handle: Any) -> GpuMeasure:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        running = self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
        seen = {
            "memory_used_bytes": memory.used if memory else None,
            "utilization": rates.gpu if rates else None,
            "processes": tuple(
                GpuProcess(pid=each.pid, memory_bytes=each.usedGpuMemory, name=_program_name(each.pid))
                for each in running
            ),
        }
        return _unseen(gpu).model_copy(update=seen)

    def _ask(self, function: str, handle: Any) -> Any:
        """Call NVML; None where this product or driver does not tell."""
        try:
            return getattr(self._nvml, function)(handle)
        except self._nvml.NVMLError:
            return None


def _unseen(gpu: Gpu) -> GpuMeasure:
    return GpuMeasure(uuid=gpu.uuid, product=gpu.product, memory_bytes=gpu.memory_bytes)


def _program_name(pid: int) -> str:
    return (read_text(f"/proc/{pid}/comm") or "").strip()
