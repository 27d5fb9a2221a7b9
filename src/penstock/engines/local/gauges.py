"""What GPUs do now, by NVML. It stays open: to open it takes longer than to look."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from penstock.domain.nodes import GpuProcess
from penstock.engines.local.supervisor.processes import read_text

log = logging.getLogger(__name__)
PATIENCE = 3.0
"""Seconds. A GPU that has fallen off its bus answers late or never: then nothing is known of any."""


class Reading(NamedTuple):
    memory_used_bytes: int | None
    utilization: int | None
    processes: tuple[GpuProcess, ...]
    """Those that compute on it, whoever started them."""


class Gauges:
    """One thread asks, whoever wants to know: others who want to know meanwhile get the same answer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "penstock-nvml")
        self._nvml: Any = None
        self._looking: asyncio.Future[dict[str, Reading]] | None = None

    async def open(self) -> None:
        """Only where there are GPUs."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    def _open(self) -> None:
        import pynvml  # type: ignore[import-untyped]

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            log.warning("what the GPUs do is not shown: %s", error)
        else:
            self._nvml = pynvml

    def close(self) -> None:
        if self._nvml:
            self._thread.submit(self._nvml.nvmlShutdown)
        self._thread.shutdown(wait=False)

    async def read(self) -> dict[str, Reading]:
        """By uuid; without those that cannot be asked."""
        if self._nvml is None:
            return {}
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().run_in_executor(self._thread, self._read)
        done, _ = await asyncio.wait([self._looking], timeout=PATIENCE)
        if not done:
            log.warning("the GPUs do not say within %.0f s what they do", PATIENCE)
        return self._looking.result() if done else {}

    def _read(self) -> dict[str, Reading]:
        nvml, found = self._nvml, {}
        try:
            for number in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                found[nvml.nvmlDeviceGetUUID(handle)] = self._reading(handle)
        except nvml.NVMLError as error:
            log.warning("a GPU does not answer: %s", error)
        return found

    def _reading(self, handle: Any) -> Reading:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        running = self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
        return Reading(
            memory_used_bytes=memory.used if memory else None,
            utilization=rates.gpu if rates else None,
            processes=tuple(
                GpuProcess(pid=each.pid, memory_bytes=each.usedGpuMemory, name=_program_name(each.pid))
                for each in running
            ),
        )

    def _ask(self, function: str, handle: Any) -> Any:
        """None where this product or driver does not tell it."""
        try:
            return getattr(self._nvml, function)(handle)
        except self._nvml.NVMLError:
            return None


def _program_name(pid: int) -> str:
    return (read_text(f"/proc/{pid}/comm") or "").strip()
