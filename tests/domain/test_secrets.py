"""Secrets are recognised by their names, and in addresses by their place."""

from __future__ import annotations

import pytest

from penstock.domain.secrets import mask_secrets, masked, masked_all, passwords_removed


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "PGPASSWORD", "db_password"),
        *("PGPASS", "GH_PAT", "AUTHORIZATION", "JWT", "api_token", "lab.example.org/api-key"),
        *("MYSQL_PWD", "SSH_PASSPHRASE", "GOOGLE_APPLICATION_CREDENTIALS", "BASIC_AUTH", "SMTP_PASS", "SESSION_COOKIE"),
    ],
)
def test_names_that_look_secret_hide_their_values(name):
    assert masked(name, "hunter2") == "***"


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "HOME", "AUTHOR", "COMPASS", "PASSES", "PATTERN", "PATIENCE", "COLOUR", "NUM_NODES"]
)
def test_other_names_do_not(name):
    assert masked(name, "blue") == "blue"


def test_an_empty_value_is_no_secret():
    assert masked("HF_TOKEN", "") == ""


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ada:hunter2@db:5432/runs", "postgresql://ada:***@db:5432/runs"),
        ("postgresql://ada:p@ss:w@db/x", "postgresql://ada:***@db/x"),
        ("redis://:hunter2@cache", "redis://:***@cache"),
        ("pip install --index-url https://u:hunter2@pypi.lab x", "pip install --index-url https://u:***@pypi.lab x"),
        ("https://lab/hook?job=7&token=hunter2#a", "https://lab/hook?job=7&token=***#a"),
        ("https://bucket/a?X-Amz-Signature=hunter2&x=1", "https://bucket/a?X-Amz-Signature=***&x=1"),
        ("curl -H 'Authorization: Bearer hunter2.x'", "curl -H 'Authorization: Bearer ***'"),
        ("Basic training, Bearer of news", "Basic training, Bearer of news"),
        ("http://db:5432/a@b", "http://db:5432/a@b"),
        ("https://example.org/a:b@c", "https://example.org/a:b@c"),
    ],
)
def test_of_an_address_only_the_password_is_hidden(address, shown):
    assert masked_all({"URL": address}) == {"URL": shown}
    assert passwords_removed({"a": [{"b": address}], "c": 1}) == {"a": [{"b": shown}], "c": 1}


def test_what_its_owner_calls_a_secret_is_one_wherever_it_stands():
    found = {
        "envs": {"LICENCE": "abc-very-secret", "SHORT": "1"},
        "Env": ["LICENCE=abc-very-secret", "SHORT=1", "OTHER=1"],
        "env": [{"name": "LICENCE", "value": "abc-very-secret"}, {"name": "OTHER", "value": "1"}],
        "argv": ["run", "--licence=abc-very-secret"],
        "name": ["1"],
    }
    assert mask_secrets(found, {"LICENCE": "abc-very-secret", "SHORT": "1"}) == {
        "envs": {"LICENCE": "***", "SHORT": "***"},
        "Env": ["LICENCE=***", "SHORT=***", "OTHER=1"],
        "env": [{"name": "LICENCE", "value": "***"}, {"name": "OTHER", "value": "1"}],
        "argv": ["run", "--licence=***"],
        "name": ["1"],
    }
