"""mindful key: keys are made, listed and revoked from the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping

import psycopg
from support import Connect
from support.command import Command
from support.query import one


def test_a_key_is_made_listed_and_revoked(dsn_of: Mapping[str, str], connect: Connect) -> None:
    key = Command(dsn_of["admin"], "key")
    made = key("create", "notebook", "--for", "customer-7", "--scope", "chat", "--days", "2").stdout.strip()
    application = connect("application")
    assert one(application, "select scopes from key_use(%s)", made) == ["chat"]
    listed = json.loads(key("list", "--json").stdout)
    assert (listed["tenant"], listed["name"], listed["requests_per_minute"]) == (
        "customer-7",
        "notebook",
        600,
    )
    assert made not in key("list").stdout
    assert "valid" in key("list").stdout
    assert key("revoke", listed["id"]).exit_code == 0
    assert "revoked" in key("list").stdout
    again = key("revoke", "00000000-0000-0000-0000-000000000000")
    assert (again.exit_code, "no key" in again.stderr) == (1, True)


def test_a_user_makes_no_key_for_another_tenant(dsn_of: Mapping[str, str], db: psycopg.Connection) -> None:
    refused = Command(dsn_of["ana"], "key")("create", "notebook", "--for", "customer-7")
    assert refused.exit_code == 1
    assert one(db, "select count(*) from api_key") == 0
