"""Other ways to an answer, and which answer stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from mindful.confidence.action import Settings, Trail, act, notice
from mindful.confidence.attempt import Asking, Attempt, retrieve, retry
from mindful.confidence.decision import Decision
from mindful.conversation.reply import Reply
from mindful.core.errors import MindfulError
from mindful.core.ports import Row, Sampling
from unit.confidence.asked import CALIBRATED, answered, attempt_of, context_of, database
from unit.fakes import FakeDatabase

EMBEDDER: Row = {"dims": 512}
SAMPLING = Sampling(max_tokens=16)
SURE = CALIBRATED | {"threshold": 0.1}
UNSURE = CALIBRATED | {"threshold": 0.99}


@pytest.mark.parametrize(
    ("action", "answer", "probability", "replaces"),
    [
        ("answer", "same", 0.1, True),
        ("flag", "other", 0.5, True),
        ("flag", "other", 0.6, True),
        ("flag", "other", 0.4, False),
        ("flag", "same", 0.6, False),
    ],
)
def test_another_answer_that_is_no_less_probable_is_shown(
    action: str, answer: str, probability: float, replaces: bool
) -> None:
    db = database(first={})
    first, made = attempt_of(db), attempt_of(db, probability=probability, action=action)
    first.answer, made.answer = "same", answer
    assert made.replaces(first) == replaces


def test_a_retry_takes_what_most_say_and_of_equals_the_first() -> None:
    def retried(default: str, *samples: str) -> Attempt:
        db = database(first={"default": default, "samples": samples})
        return retry(Asking(db, SAMPLING), attempt_of(db), 0.5)

    made = retried("red fox", "Blue whale.", "blue whale", "gray goose", "blue whale!")
    assert made.answer.lower().strip(".!") == "blue whale"
    assert (made.decision.model, made.decision.ways) == ("first", ("retry",))
    assert sum(other["times"] for other in made.decision.alternatives) == 4
    assert made.parent is not None
    assert retried("red fox", "a", "blue whale", "blue whale", "red fox").answer == "red fox"


def test_only_a_calibrator_of_its_own_lets_another_way_pass() -> None:
    def retried(**calibrators: Row) -> Decision:
        db = database(calibrators=calibrators, first={"samples": ["x"]})
        return retry(Asking(db, SAMPLING), attempt_of(db), 0.5).decision

    passed = retried(**{"first retry": SURE})
    assert (passed.action, passed.calibrator_id, passed.ways) == ("answer", 7, ("retry",))
    assert passed.generation_id == 1
    kept = retried(first=SURE)
    assert (kept.action, kept.threshold, kept.threshold_id) == ("flag", None, None)
    assert kept.probability == pytest.approx(0.731, abs=0.001)


def found(number: int, content: str, **changed: Any) -> Row:
    return {
        "id": number,
        "content": content,
        "role": None,
        "score": 0.5,
        "similarity": 0.9,
        "bm25": 1.0,
    } | changed


def retrieved(rows: list[Row], memories: int = 3, **options: Any) -> Attempt | None:
    db = database({"mindful.memory_recall": rows}, first=options)
    context = context_of("Where is Rex?", "Rex is a dog.")
    return retrieve(
        Asking(db, Sampling(max_tokens=options.get("context_length", 2048) // 4)),
        attempt_of(db, context),
        memories,
    )


def test_more_memories_are_shown_before_the_question() -> None:
    made = retrieved(
        [found(1, "Rex is a dog."), found(5, "Rex is in Oslo.", score=0.8), found(6, "Rex barks.")]
    )
    assert made is not None
    assert made.context.memory_ids == [1, 5, 6]
    assert [part.part for part in made.context.parts] == ["system", "memory", "memory", "memory", "message"]
    assert made.context.parts[2].score == 0.8
    assert made.decision.ways == ("retrieve",)


def test_so_many_as_wanted_and_related_alone() -> None:
    rows = [found(at, f"Rex {at}") for at in range(5, 9)]
    made = retrieved(rows, memories=2)
    assert made is not None
    assert made.context.memory_ids == [5, 6]
    none = [
        found(5, "far", bm25=None, similarity=0.0),
        found(7, "Where is Rex?"),
    ]
    assert retrieved(none) is None


def test_nothing_new_is_no_attempt() -> None:
    assert retrieved([found(1, "Rex is a dog.")]) is None
    assert retrieved([]) is None


def test_memories_that_do_not_fit_are_left_out() -> None:
    rows = [found(5, "word " * 20), found(6, "word " * 20), found(7, "word " * 20)]
    lengths = []
    for context_length in (90, 120, 150, 400):
        made = retrieved(rows, context_length=context_length)
        lengths.append(0 if made is None else len(made.context.memory_ids))
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1] == 3


def wanting(**settings: Any) -> Settings:
    return Settings(**settings)


def acted(wanted: Settings, db: FakeDatabase, *memories: str) -> Trail:
    context = context_of("Who is it?", *memories)
    call, answer = answered(db, context)
    return act(db, wanted, call, context, SAMPLING, Reply(answer))


def test_by_default_an_answer_is_flagged_and_nothing_else() -> None:
    trail = acted(wanting(), database(first={"default": "a fox"}))
    assert (trail.decision.action, trail.reply, trail.role) == ("uncalibrated", "a fox", "assistant")
    assert len(trail.attempts) == 1
    assert trail.decision.offered is False
    assert trail.decision.total_ms > 0


def test_what_is_sure_is_given_and_nothing_is_tried() -> None:
    trail = acted(
        wanting(chat_abstain_below=1, chat_retry=True, label_share=1),
        database(calibrators={"first": SURE}, first={"default": "a fox"}),
    )
    assert (trail.decision.action, trail.reply, trail.decision.offered) == ("answer", "a fox", False)


@pytest.mark.parametrize(("least", "action"), [(0.5, "uncalibrated"), (0.51, "abstain"), (1, "abstain")])
def test_what_is_less_probable_than_wanted_is_withheld_and_kept(least: float, action: str) -> None:
    trail = acted(wanting(chat_abstain_below=least), database(first={"default": "a fox"}))
    assert trail.decision.action == action
    assert (trail.reply == "a fox") == (action != "abstain")
    assert trail.decision.answer == (None if action != "abstain" else "a fox")


@pytest.mark.parametrize(
    ("share", "threshold", "offered"),
    [(0, 1.0, False), (1, 1.0, True), (0, None, False), (0.01, None, True)],
)
def test_a_share_of_what_is_below_a_threshold_is_offered_for_a_label(
    share: float, threshold: float | None, offered: bool
) -> None:
    calibrators: dict[str, Row] = {"first": CALIBRATED | {"threshold": threshold}}
    decision = acted(wanting(label_share=share), database(calibrators=calibrators, first={})).decision
    assert (decision.offered, decision.propensity) == (offered, 1.0)


def test_before_a_threshold_a_quarter_of_improbable_answers_is_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    improbable: dict[str, Row] = {"first": CALIBRATED | {"threshold": None, "intercept": -2.0}}
    for drawn, found in ((0.24, (True, 0.25)), (0.26, (False, 1.0))):
        monkeypatch.setattr("random.random", lambda drawn=drawn: drawn)
        asked = acted(wanting(label_share=0.05), database(calibrators=improbable, first={})).decision
        assert asked.probability < 0.3
        assert (asked.offered, asked.propensity) == found
    unranked = acted(wanting(label_share=0.05), database(first={})).decision
    assert (unranked.action, unranked.offered) == ("uncalibrated", False)


@pytest.mark.parametrize(("own", "action"), [(1, "uncalibrated"), (0.5, "answer"), (0.6, "uncalibrated")])
def test_the_users_own_threshold_acts_until_one_is_certified(own: float, action: str) -> None:
    decision = acted(wanting(answer_above=own), database(first={})).decision
    assert (decision.action, decision.threshold_id) == (action, None)
    assert ("not certified" in decision.reason) == (own < 1)
    certified = acted(wanting(answer_above=0.1), database(calibrators={"first": UNSURE}, first={})).decision
    assert (certified.action, certified.threshold_id) == ("flag", 8)


def test_a_share_is_its_propensity() -> None:
    db = database(calibrators={"first": CALIBRATED | {"threshold": 1.0}}, first={})
    found = [acted(wanting(label_share=0.5), db).decision for _ in range(60)]
    offered = [decision for decision in found if decision.offered]
    assert 10 < len(offered) < 50
    assert {decision.propensity for decision in offered} == {0.5}


def escalated(wanted: Settings, calibrators: dict[str, Row], second: str = "a whale") -> Trail:
    db = database(
        embedder=EMBEDDER,
        fallback="second",
        calibrators=calibrators,
        first={"default": "a fox"},
        second={"default": second},
    )
    return acted(wanted, db)


def test_a_second_answer_stands_where_its_own_calibrator_lets_it_pass() -> None:
    trail = escalated(wanting(chat_escalate=True), {"first escalate second": SURE})
    assert (trail.reply, trail.decision.action, len(trail.attempts)) == ("a whale", "escalate", 2)
    assert trail.attempts[0].decision.answer == "a fox"
    assert trail.attempts[0].decision.action == "escalate"
    assert trail.decision.signals["second_agreement"] == 0
    assert trail.attempts[0].decision.signal_tier == 2
    kept = escalated(wanting(chat_escalate=True), {"first escalate second": UNSURE})
    assert (kept.reply, kept.decision.action, len(kept.attempts)) == ("a fox", "uncalibrated", 2)
    assert kept.attempts[1].decision.answer == "a whale"
    assert len(escalated(wanting(signal_tier=2), {}).attempts) == 1
    assert escalated(wanting(signal_tier=1), {}).decision.signal_tier == 1


def test_more_signals_decide_anew_where_a_calibrator_reads_them() -> None:
    trail = escalated(wanting(signal_tier=1), {"first": UNSURE})
    assert trail.decision.action == "flag"
    assert {"question", "brief", "free"} <= set(trail.decision.signal_ms)


def test_a_retry_is_made_where_it_was_measured_to_help() -> None:
    def retried(gain: Sequence[Row]) -> Trail:
        db = database({"_mindful.action_gain_find": gain}, first={"default": "a fox", "samples": ["a whale"]})
        return acted(wanting(chat_retry=True), db)

    trail = retried([{"helps": True}])
    assert (trail.reply, trail.decision.action, len(trail.attempts)) == ("a whale", "flag", 2)
    assert trail.attempts[0].decision.action == "retry"
    assert trail.attempts[0].decision.answer == "a fox"
    for gain in ([{"helps": False}], []):
        assert len(retried(gain).attempts) == 1


@pytest.mark.parametrize(("below", "attempts"), [(0.5, 1), (0.51, 2)])
def test_more_is_recalled_where_little_of_the_question_was_found(below: float, attempts: int) -> None:
    db = database({"mindful.memory_recall": [found(9, "It is Rex.")]}, first={"default": "a fox"})
    trail = acted(wanting(chat_retrieve=True, chat_retrieve_below=below), db, "Rex is a dog.")
    assert len(trail.attempts) == attempts


def test_an_attempt_that_fails_or_is_silent_costs_its_time_alone() -> None:
    db = database(first={"default": "a fox"})
    first = attempt_of(db)
    trail = Trail(db, wanting(), SAMPLING, first)

    def failing(_: Attempt) -> Attempt | None:
        raise MindfulError("no luck")

    silent = attempt_of(db, probability=0.9)
    silent.answer = ""
    before = trail.decision.total_ms
    trail.try_again("retry", failing)
    trail.try_again("retry", lambda _: None)
    trail.try_again("retry", lambda _: silent)
    assert (trail.attempts, trail.standing, trail.reply) == ([first], first, "a fox")
    assert trail.decision.total_ms > before
    assert "no luck" in trail.decision.reason


def test_what_must_be_certain_stands_only_if_it_passes() -> None:
    db = database(first={"default": "a fox"})
    for certain, action, stands in ((False, "flag", True), (True, "flag", False), (True, "answer", True)):
        trail = Trail(db, wanting(), SAMPLING, attempt_of(db))
        made = attempt_of(db, probability=0.9, action=action)
        made.answer = "a whale"
        trail.try_again("retry", lambda _, made=made: made, certain)  # type: ignore[misc]
        assert (trail.standing is made) == stands
        assert len(trail.attempts) == 2


def test_decisions_are_recorded_children_after_parents() -> None:
    rows: list[dict[str, Any]] = []

    def insert(text: str) -> list[Row]:
        rows.extend(json.loads(text))
        return [{"id": 100 + len(rows)}]

    db = database(first={"default": "a fox"})
    db.answers["insert into mindful.decision"] = insert
    trail = Trail(db, wanting(), SAMPLING, attempt_of(db))
    made = attempt_of(db, probability=0.9)
    made.answer, made.parent = "a whale", trail.attempts[0]
    trail.try_again("retry", lambda _: made)
    assert trail.record(5, 3) == 102
    assert [(row["parent_id"], row["message_id"], row["replaced_by_id"]) for row in rows] == [
        (3, None, 5),
        (101, 5, None),
    ]


@pytest.mark.parametrize(
    ("texts", "role"),
    [(["Anna Smith called.", "Anna Miller called."], "clarification"), (["Anna Smith called."], "assistant")],
)
def test_a_question_is_asked_back_where_a_name_is_of_two(texts: list[str], role: str) -> None:
    db = database(embedder=EMBEDDER, first={"default": "a fox"})
    considered = [found(at, text) for at, text in enumerate(texts)]
    context = context_of("What does Anna want?")
    context = type(context)(context.parts, context.layout, considered=considered)
    call, answer = answered(db, context)
    trail = act(db, wanting(chat_clarify=True), call, context, SAMPLING, Reply(answer))
    assert trail.role == role
    assert trail.decision.action == ("clarify" if role == "clarification" else "uncalibrated")
    assert trail.reply != "" if role == "clarification" else trail.reply == "a fox"


def test_a_question_is_asked_back_where_answers_of_two_meanings_come_more_than_once() -> None:
    samples = ["a fox", "a whale", "a whale", "a fox"]
    db = database(embedder=EMBEDDER, first={"default": "a fox", "samples": samples})
    trail = acted(wanting(chat_clarify=True), db)
    assert trail.role == "clarification"
    assert "fox" in trail.reply
    assert "whale" in trail.reply


def test_a_notice_is_the_surer_the_more_probable() -> None:
    def of(probability: float, calibrator: int | None = 1, is_ranked: bool = True) -> str:
        decision = Decision("m", False, {}, probability=probability, calibrator_id=calibrator)
        decision.is_ranked = is_ranked
        return notice(decision)

    wordings = [of(at / 100).split(" (")[0] for at in range(101)]
    assert [wordings.index(text) for text in dict.fromkeys(wordings)] == [0, 25, 50, 75]
    assert "37%" in of(0.37)
    assert "%" not in of(0.37, None)
    assert of(1.0).startswith("\n\n[")
    assert {of(at / 10, None, is_ranked=False) for at in range(11)} == {
        "\n\n[I cannot tell how sure I am of this.]"
    }
