"""GPUs: what NVML knows of them, and the machine-wide lock on each."""

from __future__ import annotations

import ctypes
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.domain.nodes import Gpu
from penstock.engines.base import DevicesBusy
from penstock.engines.local.layout import disk_errors
from penstock.engines.local.sandbox import Bind

LIBRARY = "libnvidia-ml.so.1"
SHARED_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
PATIENCE = 0.2
"""Seconds a lock is tried for: a server that only looks holds it for an instant."""


def find_gpus() -> tuple[Gpu, ...]:
    """Every GPU NVML shows; none where there is no driver."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return ()
    import pynvml  # type: ignore[import-untyped]

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_gpu(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount()))
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, number: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    return Gpu(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        product=nvml.nvmlDeviceGetName(handle),
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
        minor=nvml.nvmlDeviceGetMinorNumber(handle),
    )


def device_binds(gpus: Sequence[Gpu]) -> list[Bind]:
    """Only the devices of these GPUs, and those every CUDA program needs."""
    if not gpus:
        return []
    names = [*(f"nvidia{gpu.minor}" for gpu in gpus), *SHARED_DEVICES]
    return [Bind(f"/dev/{name}", f"/dev/{name}", "--dev-bind-try") for name in names]


def lock_gpus(directory: Path, uuids: Sequence[str]) -> list[int]:
    """A descriptor per GPU that holds its lock for as long as anyone has it open; all or none."""
    held: list[int] = []
    try:
        for uuid in uuids:
            fd = _open(directory, uuid)
            held.append(fd)
            if not _take(fd):
                raise DevicesBusy([uuid])
    except BaseException:
        for fd in held:
            os.close(fd)
        raise
    return held


def _take(fd: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)


def locked(directory: Path, uuids: Sequence[str]) -> Iterator[str]:
    """Those of the GPUs that someone holds now."""
    for uuid in uuids:
        try:
            fd = os.open(directory / uuid, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield uuid
        finally:
            os.close(fd)


def _open(directory: Path, uuid: str) -> int:
    """Without O_CREAT first: the kernel refuses that on another user's file in a sticky directory."""
    path = directory / uuid
    with disk_errors(path):
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not directory.exists():
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o1777)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with suppress(PermissionError):
            os.fchmod(fd, 0o666)
        return fd
