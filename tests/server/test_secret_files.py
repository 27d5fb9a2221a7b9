"""What is the server's alone: in files that only it can read, or as systemd's credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SettingsError
from penstock.server.secret_files import SECRET, with_secrets
from penstock.settings import Settings
from tests.running import StartFailed, start_server


def kept(path: Path, text: str = "hunter2\n", mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("key", SECRET)
def test_it_is_read_from_its_file_or_from_systemd(tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named = Settings(**{f"{key}_file": kept(tmp_path / key)})  # type: ignore[arg-type]
    assert getattr(with_secrets(named), key) == "hunter2"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert getattr(with_secrets(Settings()), key) == "hunter2"
    assert getattr(with_secrets(Settings(**{key: "said"})), key) == "said"  # type: ignore[arg-type]


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    settings = Settings(
        database_url="postgresql+psycopg://me@host/name",
        database_url_file=kept(tmp_path / "both"),
        telegram_token_file=kept(tmp_path / "open", mode=0o644),
        webhook_secret_file=str(tmp_path / "missing"),
    )
    with pytest.raises(SettingsError) as refused:
        with_secrets(settings)
    said = [str(problem) for problem in refused.value.problems]
    assert "database_url_file: is set twice" in said[0]
    assert f"{tmp_path}/open can be read by everyone" in said[1]
    assert f"chmod 600 {tmp_path}/open" in said[1]
    assert f"{tmp_path}/missing cannot be read" in said[2]


def test_a_server_whose_secret_everyone_can_read_does_not_start(place: Path) -> None:
    with pytest.raises(StartFailed, match="can be read by everyone"):
        start_server(place, webhook_secret_file=kept(place / "secret", mode=0o644))
