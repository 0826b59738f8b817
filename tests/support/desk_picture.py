"""Take a picture of the desk in Chromium, from what a server answers now.

desk_picture.py --write FILE talks in the database of MINDFUL_TEST_DSN, which has the default models.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import psycopg
from mindful_serve.settings import Settings
from psycopg.conninfo import make_conninfo

from support.browser import Keys, chromium
from support.running import running

FACTS = (
    "The spare key hangs behind the boiler.",
    "Marta moved to Oslo in 2024.",
    "The boiler is serviced every October.",
)
QUESTIONS = ("Where does Marta live?", "Where is the spare key?")


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, required=True)
    target: Path = parser.parse_args().write
    dsn = os.environ["MINDFUL_TEST_DSN"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create role marta login in role mindful_user")
    person = make_conninfo(dsn, user="marta")
    with psycopg.connect(person, autocommit=True) as connection:
        for fact in FACTS:
            connection.execute("select mindful.memory_insert(%s)", (fact,))
    with running(Settings(dsn=person)) as url, chromium() as browser:
        browser.look(1000, 600)
        for question in QUESTIONS:
            browser.open(url)
            browser.type(question, Keys.ENTER)
            browser.wait(".turn:not([aria-busy]) .badge")
        browser.open(browser.address)
        browser.wait(".why summary").click()
        browser.wait(".why .score summary").click()
        browser.save(target)


if __name__ == "__main__":
    main()
