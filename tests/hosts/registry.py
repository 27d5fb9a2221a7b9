"""The registries of a lot: Debian's docker-registry, once open to all and once for those who log in."""

from __future__ import annotations

import json
import signal
from http.client import HTTPConnection
from typing import Any

from tests.hosts import programs
from tests.rig.processes import Processes, wait_for

OPEN_PORT = 5000
PRIVATE_PORT = 5001

LOGIN = ("person", "open-sesame")
_HASHED = "person:$2b$05$4JJ7OQ1Rj3M1lqkT9SPm0uBD137a88EuRHPPNQ397f1vCxPAjj7Sy\n"
"""The same, as bcrypt has it: the only form this registry reads."""


class Registry:
    def __init__(self, processes: Processes, address: str, port: int, login: tuple[str, str] | None = None) -> None:
        self.address = f"{address}:{port}"
        """What the name of an image in it begins with."""
        self.login = login
        """User and password, where it wants them."""
        self.component = "registry-private" if login else "registry"
        self._processes = processes
        self._home = processes.directory / self.component

    def begin(self) -> None:
        self._home.mkdir()
        (self._home / "passwords").write_text(_HASHED)
        config = self._home / "config.json"  # What is JSON is YAML.
        config.write_text(json.dumps(self._config()))
        self._processes.start(self.component, programs.REGISTRY, "serve", config)

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "info"},
            "storage": {"filesystem": {"rootdirectory": str(self._home / "images")}, "delete": {"enabled": True}},
            "http": {"addr": self.address},
        }
        if self.login:
            config["auth"] = {"htpasswd": {"realm": "private", "path": str(self._home / "passwords")}}
        return config

    def wait(self) -> None:
        """Until it answers, and be it with no."""

        def answers() -> bool:
            self._processes.check(self.component)
            connection = HTTPConnection(self.address, timeout=5)
            try:
                connection.request("GET", "/v2/")
                return connection.getresponse().status in (200, 401)
            finally:
                connection.close()

        wait_for(f"the registry at {self.address}", answers)

    def heal(self) -> None:
        """What a test stopped or killed and did not start again."""
        self._processes.signal(self.component, signal.SIGCONT)
        self.start()

    def stop(self) -> None:
        """Kill it: connections are refused."""
        self._processes.stop(self.component)

    def start(self) -> None:
        self._processes.start(self.component)
        self.wait()

    def pause(self) -> None:
        """Let it stand still: connections are taken, and nobody answers."""
        self._processes.signal(self.component, signal.SIGSTOP)

    def resume(self) -> None:
        self._processes.signal(self.component, signal.SIGCONT)
        self.wait()
