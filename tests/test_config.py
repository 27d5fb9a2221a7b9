"""Settings: files, variables and flags, and what is said about a wrong one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from penstock import settings
from penstock.config import SYSTEM_DATA, load
from penstock.errors import SettingsError
from penstock.settings import SYSTEM_SOCKET, Settings, config_dir, default_data_dir


@pytest.fixture
def config(tmp_path, monkeypatch) -> Path:
    """An empty home of settings; the file is written by the test."""
    monkeypatch.setattr("penstock.config.SYSTEM_CONFIG", tmp_path / "etc" / "config.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "config" / "penstock").mkdir(parents=True)
    return tmp_path / "config" / "penstock" / "config.toml"


def problems_of(**overrides) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(overrides)
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


def test_without_a_file_every_setting_has_its_default(config, tmp_path):
    loaded = load()
    assert loaded == Settings()
    assert loaded.data_dir == tmp_path / "data" / "penstock"
    assert loaded.socket_path == tmp_path / "data" / "penstock" / "penstock.sock"
    assert loaded.url == f"sqlite:///{tmp_path}/data/penstock/penstock.db"


def test_a_home_without_xdg_variables_is_used(monkeypatch):
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/ada")
    assert config_dir() == Path("/home/ada/.config/penstock")
    assert default_data_dir() == Path("/home/ada/.local/share/penstock")


def test_the_own_file_wins_over_the_systems_a_variable_over_both_a_flag_over_all(config, tmp_path, monkeypatch):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "config.toml").write_text('port = 1\nhost = "::1"\nretention = "1d"\nlog_limit = "1Gi"\n')
    config.write_text('port = 2\nretention = "2d"\nlog_limit = "2Gi"\n')
    monkeypatch.setenv("PENSTOCK_PORT", "3")
    monkeypatch.setenv("PENSTOCK_LOG_LIMIT", "3Gi")
    loaded = load({"port": 4, "retention": None})
    assert (loaded.host, loaded.retention, loaded.log_limit, loaded.port) == ("::1", "2d", "3Gi", 4)


def test_lists_and_tables_can_be_said_in_a_file_and_in_a_variable(config, monkeypatch):
    config.write_text('allowed_hosts = ["a.example", "b.example"]\n[storage_classes]\nfast = "/nvme"\n')
    loaded = load()
    assert loaded.allowed_hosts == ("a.example", "b.example")
    assert loaded.storage_classes == {"fast": "/nvme"}
    monkeypatch.setenv("PENSTOCK_ALLOWED_HOSTS", "c.example, d.example")
    monkeypatch.setenv("PENSTOCK_STORAGE_CLASSES", "fast=/nvme, slow=/hdd")
    loaded = load()
    assert loaded.allowed_hosts == ("c.example", "d.example")
    assert loaded.storage_classes == {"fast": "/nvme", "slow": "/hdd"}


def test_numbers_need_no_quotes_in_the_file(config):
    config.write_text('cpus = 4\ndefault_cpus = 0.5\nmemory = "64Gi"\n')
    loaded = load()
    assert (loaded.cpus, loaded.default_cpus, loaded.memory) == ("4", "0.5", "64Gi")


def test_system_mode_has_places_of_its_own(config):
    loaded = load({"mode": "system"})
    assert loaded.data_dir == SYSTEM_DATA
    assert loaded.socket_path == SYSTEM_SOCKET
    assert load({"mode": "system", "data_dir": "/srv/penstock"}).data_dir == Path("/srv/penstock")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('auth = "none"', """auth: must be "token" or "header", not 'none'"""),
        ("sandbox = false", 'sandbox: must be "bubblewrap" or "none", not False'),
        ("engine = []", 'engine: must be "local" or "docker" or "kubernetes", not []'),
        ("port = 70000", "port: must be a whole number from 0 to 65535, not 70000"),
        ("port = true", "port: must be a whole number from 0 to 65535, not True"),
        ("port = 8e3", "port: must be a whole number from 0 to 65535, not 8000.0"),
        ('data_dir = "here"', "data_dir: must be an absolute path, not 'here'"),
        ("host = true", "host: must be text, not True"),
        ("webhooks = ['[x']", "webhooks: must be addresses that begin with http:// or https://, not ['[x']"),
        ("allowed_hosts = [1]", "allowed_hosts: must be a list of text, not [1]"),
        ('storage_classes = {fast = "nvme"}', "storage_classes: must be a table of name = absolute directory"),
        ("memory = 64", "memory: '64' has no unit (64Gi or 64Mi)"),
        ('log_limit = "1GB"', "log_limit: '1GB' is not a size (1Gi)"),
        ('default_cpus = ""', "default_cpus: '' is not a number of CPUs (for example 4, 0.5 or 500m)"),
        ("retention = 30", "retention: '30' is not a duration (30s, 30m or 30h)"),
        ("prot = 8001", "'prot' is not a setting (did you mean 'port'?)"),
        ("xyzzy = 1", "'xyzzy' is not a setting (the settings are address_connections, allowed_hosts, auth,"),
        ("port = ", "is not TOML: "),
        ("port = 1\nport = 2", "is not TOML: "),
    ],
)
def test_a_wrong_line_names_file_key_and_what_is_allowed(config, line, said):
    config.write_text(line)
    (problem,) = problems_of()
    assert problem.startswith(f"{config}: {said}")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PENSTOCK_AUTH", "none", """auth: must be "token" or "header", not 'none'"""),
        ("PENSTOCK_PORT", "http", "port: must be a whole number from 0 to 65535, not 'http'"),
        ("PENSTOCK_PORT", "٨", "port: must be a whole number from 0 to 65535, not '٨'"),
        ("PENSTOCK_PORT", "9" * 5000, "port: "),
        ("PENSTOCK_STORAGE_CLASSES", "fast", "storage_classes: must be a table of name = absolute directory"),
        ("PENSTOCK_DATA_DIR", "", "data_dir: must be an absolute path, not ''"),
    ],
)
def test_a_wrong_variable_is_named(config, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    (problem,) = problems_of()
    assert problem.startswith(f"{variable}: {said}")
    assert len(problem) < 300


def test_a_wrong_flag_is_named(config):
    assert problems_of(log_limit="1GB") == ["--log-limit: log_limit: '1GB' is not a size (1Gi)"]


def test_all_mistakes_are_said_at_once(config, monkeypatch):
    config.write_text('port = -1\nauth = "x"\n')
    monkeypatch.setenv("PENSTOCK_SANDBOX", "docker")
    assert len(problems_of(stop_grace="soon")) == 4


def test_a_file_that_is_not_text_is_named(config):
    config.write_bytes(b"port = \xff")
    (problem,) = problems_of()
    assert problem.startswith(f"{config}: cannot be read: ")


def test_a_file_in_utf8_is_read_whatever_the_locale_is(config, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    config.write_bytes('data_dir = "/srv/daten-für-alle"\n'.encode())
    assert load().data_dir == Path("/srv/daten-für-alle")


def test_a_variable_that_is_no_setting_is_left_alone(config, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert load() == Settings()


def test_every_setting_is_explained():
    source = Path(settings.__file__).read_text()
    for known in fields(Settings):
        following = source.split(f"    {known.name}: ", 1)[1].split("\n", 1)[1].lstrip()
        assert following.startswith('"""'), known.name
