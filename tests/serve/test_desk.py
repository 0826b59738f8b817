"""The desk, as a person with a keyboard uses it in Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
import psycopg
import pytest
from mindful_serve.settings import Settings
from serve.conftest import Service, Start
from support.browser import CHROMIUM, DRIVER, Browser, Keys, chromium
from support.models import register_once
from support.query import one
from support.running import running

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Chromium is missing: apt-get install chromium chromium-driver"
)
HOSTILE = (
    '<script>window.hacked=1</script><img src=x onerror="window.hacked=2"></textarea></p>'
    "<hx-partial hx-target=body>gone</hx-partial> {{ 7 * 7 }} <b>bold</b>"
)
SERVICES = {"service", "desk"}
VIEWS = ("/", "/desk/memories", "/desk/labels", "/desk/confidence", "/desk/status")


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """Chromium, started once."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def browser(window: Browser, request: pytest.FixtureRequest) -> Iterator[Browser]:
    """Chromium without cookies, which must have nothing to complain of at the end."""
    for service in SERVICES.intersection(request.fixturenames):  # They end after the page that asks them.
        request.getfixturevalue(service)
    window.look()
    window.forget()
    window.complaints()
    yield window
    window.wait_gone(".htmx-request")
    window.open("about:blank")
    assert window.complaints() == []


@pytest.fixture
def talker(scripted: None, admin: psycopg.Connection) -> None:
    """A default generator that knows where the key hangs, and says something hostile of trees."""
    replies = [["tree", HOSTILE], ["key", "It hangs\nbehind the boiler."]]
    register_once(admin, "talker", "generator", "scripted", replies=replies, default="I do not know.")
    admin.execute("select model_default_set('talker', force => true)")


@pytest.fixture
def asked_always(ana: psycopg.Connection) -> None:
    """The generator answers what no memory tells, too."""
    ana.execute("select setting_set('chat_unknown', 'false')")


@pytest.fixture
def desk(dsn_of: Mapping[str, str], talker: None) -> Iterator[str]:
    """The desk's address on loopback, where ana needs no key."""
    with running(Settings(dsn=dsn_of["ana"])) as url:
        yield url


@pytest.fixture
def open_desk(desk: str, browser: Browser) -> str:
    """The desk's address, open in the browser."""
    browser.open(desk)
    return desk


@pytest.mark.shares
def test_a_person_signs_in_with_a_key_that_no_script_can_read(
    browser: Browser, service: Service, talker: None
) -> None:
    browser.open(f"{service.url}/desk/memories")
    assert browser.address.endswith("/desk/signin")
    browser.type("wrong", Keys.ENTER)
    browser.wait("[role=alert]", "The key is wrong")
    assert any("401" in line for line in browser.complaints())
    for wrong in ("\0", "Ā", "mk-\r\nset-cookie: x=1"):
        sent = {"data": {"key": wrong}, "headers": {"origin": service.url}}
        assert httpx2.post(f"{service.url}/desk/signin", **sent).status_code == 401  # type: ignore[arg-type]
    browser.type(service.key, Keys.ENTER)
    browser.wait("#composer")
    (cookie,) = browser.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert browser.run("return document.cookie") == ""
    browser.wait("header button", "Sign out").send_keys(Keys.ENTER)
    browser.wait(".signin")
    assert browser.cookies() == []


def test_an_answer_is_streamed_and_says_what_it_rests_on(
    browser: Browser, open_desk: str, ana: psycopg.Connection
) -> None:
    ana.execute("select memory_insert('The spare key hangs behind the boiler.')")
    browser.type("Where is the spare key?", Keys.ENTER)
    browser.wait(".turn .badge", "not calibrated yet: check this")
    assert len(browser.all(".turn .badge")) == 1
    assert browser.wait(".turn .words").text == "It hangs\nbehind the boiler."
    assert browser.wait(".said").text == "Where is the spare key?"
    assert browser.wait("h1").text == "Where is the spare key?"
    assert browser.wait("#message").get_property("value") == ""
    browser.wait(".why summary", "1 memory shown").send_keys(Keys.ENTER)
    browser.wait(".why dd", "not calibrated")
    shown = browser.wait(".why .memory", "The spare key hangs behind the boiler.")
    assert "score" in shown.text
    browser.wait(".why .score summary").send_keys(Keys.ENTER)
    browser.wait(".why .score dt", "meaning")
    session_id = one(ana, "select session_id from session")
    assert browser.address == f"{open_desk}/?session={session_id}"
    browser.open(browser.address)
    browser.wait(".turn .words", "behind the boiler")
    browser.type("And the key of the car?", Keys.ENTER)
    browser.wait(".said ~ .said", "And the key of the car?")
    browser.wait(".turn ~ .turn .badge")
    assert one(ana, "select count(*) from session") == 1
    browser.type(Keys.ESCAPE, "n")
    browser.wait("h1", "New conversation")
    assert browser.wait(".sessions a").text == "Where is the spare key?"


@pytest.mark.shares
def test_pieces_of_an_answer_come_one_by_one(service: Service, talker: None) -> None:
    cookies, headers = {"mindful_key": service.key}, {"origin": service.url, "hx-request": "true"}
    said = {"message": "Write a line about a key.", "session": ""}
    with httpx2.Client(base_url=service.url, cookies=cookies, headers=headers) as client:
        answer = client.post("/desk/say", data=said)
    pieces = [line for line in answer.text.splitlines() if "-words" in line and "hx-partial" in line]
    assert len(pieces) == 5
    assert "text/event-stream" in answer.headers["content-type"]


def test_what_no_memory_tells_is_not_answered(browser: Browser, open_desk: str) -> None:
    browser.type("Where is my spare key?", Keys.ENTER)
    browser.wait(".turn .badge", "no answer: not sure enough")
    assert browser.wait(".turn .words").text == "I do not know."
    browser.wait(".why summary", "0 memories shown").send_keys(Keys.ENTER)
    browser.wait(".why dd", "no memory answers the question")


def test_a_failure_within_an_answer_is_told(
    browser: Browser, open_desk: str, admin: psycopg.Connection
) -> None:
    options = {"default": "One two three four.", "fails_after": 2}
    admin.execute(
        "select model_register('broken', 'generator', 'scripted', '', options => %s)", (json.dumps(options),)
    )
    admin.execute("select model_default_set('broken', force => true)")
    browser.open(open_desk)
    browser.type("Hello", Keys.ENTER)
    assert "reported an error" in browser.wait(".turn [role=alert]").text


@pytest.mark.usefixtures("asked_always")
def test_texts_that_look_like_pages_are_shown_as_texts(
    browser: Browser, open_desk: str, ana: psycopg.Connection
) -> None:
    ana.execute("select memory_insert(%s)", ("The tree is an oak. " + HOSTILE,))
    browser.type("Which tree is it? " + HOSTILE, Keys.ENTER)
    browser.wait(".turn .badge")
    assert browser.wait(".turn .words").text == HOSTILE
    assert browser.wait(".said").text.endswith(HOSTILE)
    assert HOSTILE[:20] in browser.wait("h1").text or "Which tree" in browser.wait("h1").text
    browser.wait(".why summary").send_keys(Keys.ENTER)
    browser.wait(".why .memory", HOSTILE)
    session_id = one(ana, "update session set title = %s returning session_id", HOSTILE)
    browser.open(f"{open_desk}/?session={session_id}")
    assert browser.wait("h1").text == HOSTILE
    assert browser.wait(".sessions a").text == HOSTILE
    browser.open(f"{open_desk}/desk/memories")
    browser.wait(".memory .words", HOSTILE)
    assert browser.wait(".memory textarea", HOSTILE)
    browser.open(f"{open_desk}/desk/labels")
    assert len(browser.all("#question .words")) == 2
    assert browser.wait("#question .words ~ .words").text == HOSTILE
    assert browser.run("return window.hacked ?? null") is None


def test_a_memory_is_found_corrected_and_forgotten_by_keys_alone(
    browser: Browser, open_desk: str, ana: psycopg.Connection
) -> None:
    ana.execute("select memory_insert('Ana lives in Oslo.'), memory_insert('The boiler is old.')")
    browser.type(Keys.ESCAPE, "2")
    browser.wait("h1", "Memories")
    browser.type("/", "Ana lives in Oslo", Keys.ENTER)
    browser.wait(".score")
    best = browser.all(".memory")[0]
    assert "Ana lives in Oslo." in best.text
    browser.wait(".memory .edit summary").send_keys(Keys.ENTER)
    browser.type(Keys.TAB, Keys.CONTROL + "a", "Ana lives in Bergen.", Keys.TAB, Keys.ENTER)
    browser.wait(".memory [role=status]", "Corrected")
    assert (
        one(ana, "select content from memory where superseded_by is null order by id desc")
        == "Ana lives in Bergen."
    )
    browser.type("/", Keys.CONTROL + "a", "Bergen", Keys.ENTER)
    browser.wait(".memory .words", "Bergen")
    browser.wait(".memory form[hx-post$=forget] button").send_keys(Keys.ENTER)
    browser.wait(".receipt td", "memory")
    assert one(ana, "select count(*) from memory where content ~ 'Bergen'") == 1
    browser.wait(".receipt button", "Forget it").send_keys(Keys.ENTER)
    receipt = browser.wait(".receipt", "Forgotten.").text
    assert f"Receipt {one(ana, 'select max(id) from forget_receipt')}." in receipt
    assert "no trace" in receipt
    assert one(ana, "select count(*) from memory where content ~ 'Bergen'") == 0


def test_a_fact_is_added(browser: Browser, open_desk: str, ana: psycopg.Connection) -> None:
    browser.open(f"{open_desk}/desk/memories")
    browser.type("a")
    browser.wait("#fact").send_keys("Tea is at four.", Keys.TAB, Keys.ENTER)
    browser.wait("#memories .memory .words", "Tea is at four.")
    assert one(ana, "select kind from memory") == "fact"


@pytest.mark.usefixtures("asked_always")
def test_answers_are_labeled_with_one_key_each(
    browser: Browser, open_desk: str, ana: psycopg.Connection
) -> None:
    for asked in ("the key", "the sun", "the sea", "the moon"):
        ana.execute("select llm_chat(%s)", (f"Where is {asked}?",))
    browser.type(Keys.ESCAPE, "3")
    for waiting, keys in ((4, "w"), (3, "r"), (2, "c")):
        browser.wait("#question", f"{waiting} answers wait")
        browser.type(keys)
    browser.type("It is up.", Keys.ENTER)
    browser.wait("#question", "1 answer waits")
    first = browser.wait("#question .words").text
    browser.type("s")
    browser.wait_address("skip=1")
    browser.wait("#question .words", first)
    browser.type("r")
    browser.wait("#question", "No answer waits")
    found = ana.execute("select correct, note from outcome order by id").fetchall()
    assert found == [(False, None), (True, None), (False, "It is up."), (True, None)]


def test_a_reply_is_labeled_where_it_stands(
    browser: Browser, open_desk: str, ana: psycopg.Connection
) -> None:
    browser.type("Where is the key?", Keys.ENTER)
    browser.wait(".turn button", "Wrong").send_keys(Keys.ENTER)
    browser.wait(".turn .badge", "labeled wrong")
    assert one(ana, "select correct from outcome") is False


def test_calibration_and_budget_are_drawn(browser: Browser, open_desk: str, ana: psycopg.Connection) -> None:
    ana.execute("select llm_chat('Write a line about a key.')")
    ana.execute(
        """insert into calibrator (model, with_memory, signal_tier, features, means, scales, weights, intercept, labels,
            wrong, metrics, last_outcome, adopted)
           values ('talker', false, 0, '{}', '{}', '{}', '{}', 0, 30, 10, '{}', 1, true)"""
    )
    ana.execute(
        """insert into threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, value, bound, status,
            labels, reason) select id, 'answers', 0.25, 0.1, 1, 0.06, 0.5, 0.5, 'certified', 30, 'x' from calibrator"""
    )
    ana.execute(
        """with decided as (
            insert into decision (message_id, model, with_memory, signal_tier, signals, signal_ms, probability,
                calibrator_id, threshold_id, threshold, action, reason)
            select (select max(id) from memory), 'talker', false, 0, '{}', '{}', n / 100.0, c.id, t.id, 0.5,
                'answer', 'x'
            from generate_series(1, 99) n, calibrator c, threshold t
            returning id, probability
        )
        insert into outcome (decision_id, correct, grader) select id, probability > 0.4, 'user' from decided"""
    )
    browser.open(f"{open_desk}/desk/confidence")
    assert len(browser.all(".figures svg")) == 5
    browser.wait(".legend", "budget 25%")
    browser.wait("td", "certified")


def test_failed_jobs_are_seen_and_tried_again(
    browser: Browser,
    open_desk: str,
    ana: psycopg.Connection,
    admin: psycopg.Connection,
    db: psycopg.Connection,
) -> None:
    admin.execute("""select setting_set('embedding_mode', '"async"', 'global')""")
    ana.execute("select memory_insert('Tea is at four.')")
    db.execute(
        """with job as (delete from embedding_job returning *)
        insert into embedding_job_failed (tenant, id, model, content_hash, attempts, error, enqueued_at)
        select tenant, id, model, content_hash, 5, %s, enqueued_at from job""",
        (HOSTILE,),
    )
    browser.open(f"{open_desk}/desk/status")
    browser.wait("#status td", "talker")
    assert HOSTILE in browser.wait("#status .error").text
    browser.wait("#status button", "Try them again").send_keys(Keys.ENTER)
    browser.wait_gone("#status .error")
    assert one(ana, "select count(*) from embedding_job") == 1


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_every_view_without_scrolling_sideways(
    browser: Browser, open_desk: str, ana: psycopg.Connection, dark: bool
) -> None:
    ana.execute("select memory_insert(%s)", ("w" * 400,))
    ana.execute("select llm_chat(%s)", ("Which tree? " + "v" * 400,))
    session_id = one(ana, "select session_id from session")
    browser.look(360, 740, dark)
    for view in (*VIEWS, f"/?session={session_id}", "/desk/memories?q=tree"):
        browser.open(open_desk + view)
        browser.wait("h1")
        assert browser.run("return document.documentElement.scrollWidth") == 360, view
        light = browser.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] > 128")
        assert light != dark


def test_another_sites_page_changes_nothing(service: Service, talker: None, db: psycopg.Connection) -> None:
    cookies = {"mindful_key": service.key}
    with httpx2.Client(base_url=service.url, cookies=cookies) as client:
        for headers in ({}, {"origin": "https://example.org"}, {"origin": "null"}):
            for path in ("/desk/memories", "/desk/say", "/desk/retry", "/desk/signin", "/desk/signout"):
                sent = client.post(path, data={"content": "x", "message": "x", "key": "x"}, headers=headers)
                assert sent.status_code == 403, path
        own = {"origin": service.url}
        assert client.post("/desk/memories", json={"content": "x"}, headers=own).status_code == 415
        assert client.post("/desk/memories", data={"content": "x"}, headers=own).status_code == 200
        for path in VIEWS:
            policy = client.get(path).headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
        # The cookie is the desk's alone: programs send their key themselves.
        assert client.get("/v1/models").status_code == 401
    assert one(db, "select count(*) from memory") == 1


def test_two_keys_never_see_each_others_desk(
    service: Service, other_key: str, talker: None, db: psycopg.Connection
) -> None:
    own = {"origin": service.url, "hx-request": "true"}
    with (
        httpx2.Client(base_url=service.url, cookies={"mindful_key": service.key}, headers=own) as mine,
        httpx2.Client(base_url=service.url, cookies={"mindful_key": other_key}, headers=own) as other,
    ):
        mine.post("/desk/memories", data={"content": "My locker has the number 4711."})
        mine.post("/desk/say", data={"message": "Where is the key of locker 4711?"})
        ids = {name: one(db, sql) for name, sql in (
            ("session", "select session_id from session"),
            ("fact", "select id from memory where kind = 'fact'"),
            ("reply", "select id from memory where role = 'assistant'"),
        )}  # fmt: skip
        reads = [
            *VIEWS,
            f"/?session={ids['session']}",
            "/desk/memories?q=4711",
            f"/desk/memories?id={ids['fact']}",
            f"/desk/memories?before={ids['reply'] + 1}",
            f"/desk/replies/{ids['reply']}/memories",
        ]
        seen = [path for path in reads if "4711" in mine.get(path).text]
        assert len(seen) >= 7
        for path in reads:
            text = other.get(path).text.replace("4711", "" if "q=4711" in path else "4711")
            assert "4711" not in text, path
        writes: list[tuple[str, dict[str, Any]]] = [
            ("/desk/say", {"message": "Go on.", "session": str(ids["session"])}),
            (f"/desk/replies/{ids['reply']}/label", {"correct": "yes"}),
            (f"/desk/memories/{ids['fact']}/correct", {"content": "Mine."}),
            (f"/desk/memories/{ids['fact']}/forget", {"confirmed": "yes"}),
        ]
        for path, form in writes:
            answer = other.post(path, data=form)
            assert answer.status_code == 404 or "there is no" in answer.text, (path, answer.text)
            assert "4711" not in answer.text
    assert one(db, "select count(*) from memory where tenant <> 'customer-7'") == 0
    assert one(db, "select count(*) from outcome") == 0


@pytest.mark.shares
def test_without_keys_no_page_of_the_web_reaches_the_desk(start: Start) -> None:
    service = start("--no-keys", tenant="customer-7")
    for path in VIEWS:
        assert httpx2.get(service.url + path).status_code == 200
        assert httpx2.get(service.url + path, headers={"host": "evil.example"}).status_code == 403
