"""Who may reach the engines of a lot: its own authority for TLS, and keys for ssh."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.rig.certificates import Certificates
from tests.rig.processes import run

USER = "admin"
"""Who logs in by ssh: not root, but of the group that may use the engine."""


class Keys:
    def __init__(self, directory: Path) -> None:
        self._certificates = Certificates(directory, "")
        self.client = directory / "client"
        """Where Docker's command line finds ca.pem, cert.pem and key.pem of one who may use the engines."""
        self.stranger = directory / "stranger"
        """The same, of one whom another authority vouches for."""
        self.ssh = directory / "ssh"

    def begin(self) -> None:
        self._certificates.begin()
        _client(self._certificates, self.client, self._certificates.authority)
        others = Certificates(self.stranger, "")
        self.stranger.mkdir(mode=0o700)
        others.begin()
        _client(others, self.stranger, self._certificates.authority)
        self.ssh.mkdir(mode=0o755)
        _key(self.user_key)
        self.known_hosts.touch()
        self.config.touch()

    def add(self, name: str, address: str) -> None:
        """A host, with a certificate and a key of its own."""
        self._certificates.make(name, f"/CN={name}", f"DNS:{name}", f"IP:{address}")
        _key(self.host_key(name))
        public = self.host_key(name).with_suffix(".pub").read_text()
        with self.known_hosts.open("a") as known:
            known.write(f"{name},{address} {public}")
        with self.config.open("a") as config:
            config.write(self._how_to_reach(name, address))

    def _how_to_reach(self, name: str, address: str) -> str:
        return "\n  ".join(
            [
                f"Host {name} {address}",
                f"HostName {address}",
                f"User {USER}",
                f"IdentityFile {self.user_key}",
                "IdentitiesOnly yes",
                f"UserKnownHostsFile {self.known_hosts}",
                "StrictHostKeyChecking yes",
                "BatchMode yes\n",
            ]
        )

    @property
    def user_key(self) -> Path:
        return self.ssh / "user"

    @property
    def known_hosts(self) -> Path:
        return self.ssh / "known_hosts"

    @property
    def config(self) -> Path:
        """For `ssh -F`: all that is needed to say `ssh host-1`."""
        return self.ssh / "config"

    def host_key(self, name: str) -> Path:
        return self.ssh / name

    def engine(self, name: str) -> dict[str, str]:
        """What the engine of a host is told."""
        return {
            "tlscacert": str(self._certificates.authority),
            "tlscert": str(self._certificates.certificate(name)),
            "tlskey": str(self._certificates.key(name)),
        }


def _client(certificates: Certificates, directory: Path, authority: Path) -> None:
    """A client's certificate and key under the names that Docker's command line looks for."""
    certificates.make("client", "/CN=client")
    directory.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(authority, directory / "ca.pem")
    shutil.copy(certificates.certificate("client"), directory / "cert.pem")
    shutil.copy(certificates.key("client"), directory / "key.pem")


def _key(file: Path) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", file.name, "-f", file)
