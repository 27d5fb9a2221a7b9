"""Where the server is looked for."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.client.address import connect_unix, local_sockets, named_url, parse_url, quote
from penstock.client.api import Client
from penstock.config import load
from penstock.errors import SettingsError, Unreachable


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("https://AI.example.org", "https://ai.example.org:443"),
        ("http://10.0.0.1", "http://10.0.0.1:80"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("https://[::1]", "https://[::1]:443"),
        ("https://example.org/penstock/", "https://example.org:443/penstock"),
    ],
)
def test_an_address_is_read(text, read):
    assert str(parse_url(text)) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:8000",
        "ftp://x",
        "http://",
        "http://:80",
        "http://a:b",
        "http://a:99999",
        "http://u:p@h:1",
        "http://a b",
    ],
)
def test_what_is_not_an_address_is_refused(text):
    with pytest.raises(SettingsError, match="is not the address of a server"):
        parse_url(text)


def test_the_flag_goes_before_the_variables_and_ours_before_the_old_one(monkeypatch):
    assert named_url(None) is None
    monkeypatch.setenv("K8S_CLI_API_URL", "http://old:1")
    assert str(named_url(None)) == "http://old:1"
    monkeypatch.setenv("PENSTOCK_API_URL", "http://ours:2")
    assert str(named_url(None)) == "http://ours:2"
    assert str(named_url("http://flag:3")) == "http://flag:3"


def test_text_is_quoted_for_a_path():
    assert quote("a/b?c=ä&d~e") == "a%2Fb%3Fc%3D%C3%A4%26d~e"


@pytest.mark.parametrize("data", [None, "/srv/data"])
@pytest.mark.parametrize("xdg", [None, "/xdg", "not-absolute"])
def test_the_quick_way_to_the_socket_agrees_with_the_settings(monkeypatch, tmp_path, data, xdg):
    monkeypatch.setenv("HOME", str(tmp_path))
    if data:
        monkeypatch.setenv("PENSTOCK_DATA_DIR", data)
    if xdg:
        monkeypatch.setenv("XDG_DATA_HOME", xdg)
    assert local_sockets() == (str(load().system_socket), str(load().socket_path))


def test_a_data_directory_of_the_settings_file_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "config.toml").write_text('data_dir = "/srv/elsewhere"\n')
    assert local_sockets()[1] == "/srv/elsewhere/penstock.sock"


def test_a_relative_data_directory_is_refused(monkeypatch):
    monkeypatch.setenv("PENSTOCK_DATA_DIR", "data")
    with pytest.raises(SettingsError, match="PENSTOCK_DATA_DIR must be an absolute path"):
        local_sockets()


def test_a_socket_deep_in_the_tree_is_reached(tmp_path: Path, monkeypatch):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("penstock.sock")
        listener.listen()
        with connect_unix(str(deep / "penstock.sock")) as connection, listener.accept()[0] as other:
            connection.sendall(b"hello")
            assert other.recv(5) == b"hello"


def test_a_machine_that_is_not_linux_is_told_to_name_a_server(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(Unreachable, match=r"The embedded engine needs Linux, and no server is named\.") as caught:
        Client().get("/v1/workloads")
    assert caught.value.hint
    assert "export PENSTOCK_API_URL=" in caught.value.hint
