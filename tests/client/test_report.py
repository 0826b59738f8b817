"""mindful report: a page that says what the views say, and needs nothing else."""

from __future__ import annotations

import html.parser
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psycopg
import pytest
from click.testing import CliRunner
from mindful_client import Client
from mindful_client.cli import main
from mindful_client.cli.confidence import page
from support import SCRIPTED_GENERATOR

NAMES = [
    "daily",
    "decisions",
    "reliability",
    "risk",
    "roc",
    "before",
    "signals",
    "costs",
    "thresholds",
    "tunings",
]
SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "line", "rect", "circle", "polyline", "polygon"}


class Page(html.parser.HTMLParser):
    """Elements of a page, and whether each was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "meta":
            self._open.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.found)


HISTORY = """
    with made as (
        insert into generation (model, model_sha256, temperature, max_tokens, prompt_sha256, prompt_tokens,
            cached_tokens, completion_tokens, finish_reason, total_ms, confidence, signals, token_logprobs, created_at)
        select %(model)s, '', 0, 64, '', 100, 0, 10, 'stop', 200,
            case when n > 1900 then 0.2 else 0.8 end + random() * 0.1, '{}', '{}',
            now() - (19 - n / 100) * interval '1 day'
        from generate_series(1, 1999) n
        returning id, created_at, confidence
    ),
    decided as (
        insert into decision (generation_id, message_id, model, with_memory, signal_tier,
            signals, signal_ms, probability,
            calibrator_id, threshold_id, threshold, action, reason, created_at)
        select m.id, %(message)s, %(model)s, false, 1, jsonb_build_object('logprob_sum', random()),
            '{"free": 1.2, "question": 8.4}', random(),
            c.id, t.id, 0.5, case when random() < 0.5 then 'answer' else 'flag' end, 'x', m.created_at
        from made m, calibrator c join threshold t on t.calibrator_id = c.id and t.status = 'certified'
        returning id, probability
    )
    insert into outcome (decision_id, correct, grader)
    select id, random() < probability, 'rule' from decided order by id
"""


@pytest.fixture
def history(quick: None, ana: psycopg.Connection) -> psycopg.Connection:
    """Ana, after twenty days of answers, the last of which was unlike those before."""
    ana.execute("select setseed(0.1)")
    row = ana.execute(
        "select message_id from llm_chat_detail('<b>Hi</b>', model => %s)", (SCRIPTED_GENERATOR,)
    ).fetchone()
    ana.execute(
        """insert into calibrator (model, with_memory, signal_tier,
            features, means, scales, weights, intercept, labels, wrong,
           metrics, last_outcome, adopted) values (%s, false, 1, '{}', '{}', '{}', '{}', 0, 30, 10, '{}', 1, true)""",
        (SCRIPTED_GENERATOR,),
    )
    for status, value in (("certified", 0.5), ("tightened", None)):
        ana.execute(
            """insert into threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, value, bound, status,
               labels, reason) select id, 'answers', 0.25, 0.1, 1, 0.06, %s, %s, %s, 30, '<script>alert(1)</script>'
               from calibrator""",
            (value, value, status),
        )
    ana.execute(HISTORY, {"model": SCRIPTED_GENERATOR, "message": (row or ())[0]})
    return ana


def test_the_page_shows_what_the_views_say(
    history: psycopg.Connection, dsn_of: Mapping[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["report", str(file)], env={"MINDFUL_DSN": dsn_of["ana"]})
    assert (done.exit_code, done.stdout) == (0, f"{file}\n"), done.output
    text = file.read_text()
    shown = Page(text)
    assert shown.count("svg") == 6
    assert "http" not in text.replace("http-equiv", "")
    assert not [attributes for _, attributes in shown.found if attributes.keys() & {"src", "href"}]
    assert shown.count("script") == 0
    assert "&lt;script&gt;" in text
    found = history.execute("select count(*), sum(generations) from confidence_daily").fetchone()
    assert found is not None
    assert f"{found[1]} answers of scripted, " in text
    drifted = history.execute(
        "select day from confidence_daily where drift > 0.25 and drift > drift_limit"
    ).fetchall()
    assert len(drifted) == 1
    assert f"{drifted[0][0]}: " in text
    assert text.count(", drift ") == 1
    assert text.count('<span class="key6">before labels: scripted, without</span>') == 3
    assert "alarm of scripted" in text
    costs = history.execute("select kind, mean_ms from signal_cost").fetchall()
    assert {"free", "question"} <= {kind for kind, _ in costs}
    for kind, mean in costs:
        assert f"<td>{kind}</td>" in text
        assert f'<td class="number">{round(mean, 1)}</td>' in text
    counts = history.execute(
        "select day, decisions from decision_daily where action = 'flag' order by day"
    ).fetchall()
    assert counts
    for day, decisions in counts:
        assert f"{day}: {decisions} flag" in text


def test_the_main_charts_are_a_picture_of_their_own(
    history: psycopg.Connection, dsn_of: Mapping[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "report.svg"
    done = CliRunner().invoke(main, ["report", str(file)], env={"MINDFUL_DSN": dsn_of["ana"]})
    assert (done.exit_code, done.stdout) == (0, f"{file}\n"), done.output
    root = ElementTree.parse(file).getroot()
    texts = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    assert {"Reliability", "Risk and coverage", "The budget, kept or not", "Actions on answers"} <= {*texts}
    assert "nothing yet" not in texts
    assert {"budget 25%", "alarm of scripted", "flag"} <= {*texts}
    # Nothing reaches over the edge, and keys stand one beside the other.
    keys = [one for one in root.iter(f"{SVG}text") if one.get("class") == "key"]
    assert all(float(one.get("x", 0)) + 5 * len(one.text or "") < 484 for one in keys)
    bob = CliRunner().invoke(main, ["report", str(file)], env={"MINDFUL_DSN": dsn_of["bob"]})
    assert bob.exit_code == 0, bob.output
    assert file.read_text().count("nothing yet") == 4


def test_daily_figures_add_up(
    history: psycopg.Connection, bob: psycopg.Connection, reader: psycopg.Connection
) -> None:
    mine = "select sum(generations), sum(labels), sum(wrong), min(mean_tokens), max(mean_ms) from confidence_daily"
    row = history.execute(mine + " where day < current_date - 1").fetchone()
    labeled = history.execute(
        """select count(*), count(*) filter (where not l.correct)
           from latest_outcome l join decision d on d.id = l.decision_id where d.created_at::date < current_date - 1"""
    ).fetchone()
    assert row is not None
    assert (row[1], row[2]) == labeled
    assert row[0] == row[1]
    assert row[3:] == (10, 200)
    for view in ("confidence_daily", "decision_daily", "signal_cost"):
        assert bob.execute(f"select * from {view}").fetchall() == []
        assert reader.execute(f"select distinct tenant from {view}").fetchall() == [(history.info.user,)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("select confidence_report()")


def test_a_beginner_has_a_page_too(
    quick: None, dsn_of: Mapping[str, str], history: psycopg.Connection
) -> None:
    with Client(dsn_of["bob"]) as client:
        found: dict[str, Any] = client.confidence_report()
    assert sorted(found) == sorted(NAMES)
    assert set(found.values()) == {None}
    text = page(found, datetime.now(UTC))
    assert Page(text).count("svg") == 0
    assert "No text was generated yet." in text
