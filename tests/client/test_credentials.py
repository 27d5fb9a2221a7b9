"""credentials.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.client.credentials import LOCAL, read_credentials, write_credentials
from penstock.errors import SettingsError


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "penstock" / "credentials.json"


def test_they_are_kept_per_server_for_their_owner_only(kept):
    write_credentials(LOCAL, "alice", None)
    write_credentials("https://example.org:443", "bob", "pst_1")
    assert read_credentials(LOCAL) == {"user": "alice"}
    assert read_credentials("https://example.org:443") == {"user": "bob", "token": "pst_1"}
    assert read_credentials("https://other.org:443") == {}
    assert kept.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in kept.parent.iterdir()] == ["credentials.json"]


@pytest.mark.parametrize("text", ["{", "[]", '{"local": "x"}'])
def test_a_damaged_file_is_named_with_the_way_out(kept, text):
    kept.parent.mkdir()
    kept.write_text(text)
    with pytest.raises(SettingsError, match=r"credentials\.json") as caught:
        read_credentials(LOCAL)
    assert caught.value.hint == f"mv {kept} {kept}.old, then penstock auth login"
