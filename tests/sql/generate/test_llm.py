"""Generate, stream, embed and count with the real models."""

import itertools
import random
import re

import psycopg
import pytest
from support import GENERATOR, SCRIPTED_GENERATOR, Connect, fails, one

WORDS = (
    " river", " house", " tree", " dog", " blue", " walk", " sing", " cold", " old", " new", " big", " stone",
)  # fmt: skip
"""Each is one token."""


@pytest.mark.shares
def test_a_question_is_answered(ana: psycopg.Connection) -> None:
    assert "Paris" in str(one(ana, "select llm_generate('What is the capital of France?')"))


@pytest.mark.smoke
@pytest.mark.shares
def test_detail_agrees_with_the_answer(ana: psycopg.Connection) -> None:
    ana.execute("select model_unload()")
    row = ana.execute(
        """select text, model, completion_tokens, prompt_tokens, cached_tokens, finish_reason, confidence,
               (signals ->> 'logprob_sum')::real, (signals ->> 'tokens')::int, first_token_ms, total_ms
           from llm_generate_detail('What is the capital of France?', max_tokens => 12)"""
    ).fetchone()
    assert row is not None
    text, model, made, prompt, cached, reason, confidence, total, tokens, first_ms, total_ms = row
    assert text == one(ana, "select llm_generate('What is the capital of France?', max_tokens => 12)")
    assert (model, reason) == (GENERATOR, "length" if made == 12 else "stop")
    assert made == tokens > 1
    assert prompt > cached == 0
    assert 0 < first_ms < total_ms
    assert confidence == pytest.approx(2.718281828 ** (total / tokens), rel=1e-3)


@pytest.mark.shares
def test_max_tokens_ends_an_answer(brief: str, ana: psycopg.Connection) -> None:
    reason, made = ana.execute(
        "select finish_reason, completion_tokens from llm_generate_detail('Write a story.', max_tokens => 7)"
    ).fetchone() or (None, None)
    assert (reason, made) == ("length", 7)


@pytest.mark.shares
def test_a_stop_string_ends_an_answer_and_is_not_shown(ana: psycopg.Connection) -> None:
    whole = str(one(ana, "select llm_generate('What is the capital of France?')"))
    cut = one(ana, "select llm_generate('What is the capital of France?', stop => '{Paris}')")
    assert cut == whole.split("Paris")[0]


@pytest.mark.shares
def test_a_seed_gives_the_same_text_again(brief: str, ana: psycopg.Connection) -> None:
    sql = "select llm_generate('Name an animal and tell about it.', temperature => 1.5, seed => %s, max_tokens => 24)"
    first = one(ana, sql, 1)
    one(
        ana, "select llm_generate('Name an animal and tell a lie about it.', max_tokens => 5)"
    )  # a warm prefix
    assert one(ana, sql, 1) == first
    assert {one(ana, sql, seed) for seed in (2, 3, 4)} != {first}


@pytest.mark.parametrize("tokens", [60, 128, 129, 257])
@pytest.mark.shares
def test_a_prompt_asked_again_is_not_evaluated_again_and_gets_the_same_logits(
    brief: str, connect: Connect, tokens: int
) -> None:
    """llama.cpp rounds a token that is evaluated alone in another way, as the rest of 129 tokens would be."""
    sql = """select prompt_tokens, cached_tokens, text, signals
             from llm_generate_detail('Say' || %s, max_tokens => 4)"""
    application = connect("application")
    application.execute("select set_config('mindful.tenant', 'a', false)")
    others, *_ = application.execute(sql, ("",)).fetchone() or ()
    for seed in range(8):  # of the prompts of 129 tokens three would differ
        words = random.Random(seed).choices(WORDS, k=tokens - others)
        # Nothing is kept for a new tenant.
        application.execute("select set_config('mindful.tenant', %s, false)", (f"{tokens}-{seed}",))
        cold, warm = (application.execute(sql, ("".join(words),)).fetchone() or () for _ in range(2))
        assert cold[:2] == (tokens, 0)
        assert warm == (tokens, tokens - 2, *cold[2:])


@pytest.mark.shares
def test_a_longer_prompt_goes_on_from_the_beginning_it_shares(brief: str, ana: psycopg.Connection) -> None:
    sql = "select text, signals, cached_tokens from llm_generate_detail(%s, max_tokens => 4)"
    beginning = "Say" + " why" * 140
    ana.execute("select model_unload()")
    *alone, _ = ana.execute(sql, (f"{beginning} or how?",)).fetchone() or ()
    ana.execute("select model_unload()")
    for prompt in (f"{beginning} and when?", "Hi", f"{beginning} or what?"):
        ana.execute(sql, (prompt,))
    *warm, cached = ana.execute(sql, (f"{beginning} or how?",)).fetchone() or ()
    assert cached > 140
    assert warm == alone


@pytest.mark.shares
def test_two_streams_of_one_connection_do_not_mix(brief: str, ana: psycopg.Connection) -> None:
    prompts = ("Tell me about cats.", "Name three rivers.")
    alone = [one(ana, "select llm_generate(%s, max_tokens => 16)", prompt) for prompt in prompts]
    with ana.transaction(), ana.cursor(name="first") as first, ana.cursor(name="second") as second:
        cursors = (first, second)
        for cursor, prompt in zip(cursors, prompts, strict=True):
            cursor.execute("select llm_generate_stream(%s, max_tokens => 16)", (prompt,))
        texts = ["", ""]
        for _ in range(20):
            for at, cursor in enumerate(cursors):
                row = cursor.fetchone()
                texts[at] += row[0] if row else ""
    assert texts == alone


def test_a_stream_yields_as_it_is_made(brief: str, ana: psycopg.Connection) -> None:
    with ana.transaction(), ana.cursor(name="stream") as cursor:
        cursor.execute("select llm_generate_stream('Write a long story about the sea.', max_tokens => 64)")
        pieces = [row[0] for row in itertools.islice(iter(cursor.fetchone, None), 3)]
        # Three pieces are here, and the call is not over: it logs itself at its end.
        assert len(pieces) == 3
        assert one(ana, "select count(*) from generation") == 0
        pieces += [row[0] for row in iter(cursor.fetchone, None)]
        assert one(ana, "select count(*) from generation") == 1
    assert "".join(pieces) == one(
        ana, "select llm_generate('Write a long story about the sea.', max_tokens => 64)"
    )


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("''", "22023"),
        ("E' \\n'", "22023"),
        ("'x', max_tokens => 0", "22023"),
        ("'x', max_tokens => null", "22004"),
        ("'x', temperature => -1", "22023"),
        ("'x', temperature => 'NaN'", "22023"),
        ("'x', seed => -1", "22023"),
        ("'x', model => 'nobody'", "42704"),
        ("'x', model => 'all-minilm-l6-v2'", "42704"),
        ("repeat('word ', 3000)", "54000"),
        ("repeat('x', 10000000)", "54000"),
    ],
)
@pytest.mark.smoke
@pytest.mark.shares
def test_bad_arguments_are_refused(ana: psycopg.Connection, arguments: str, sqlstate: str) -> None:
    logged = one(ana, "select count(*) from generation")
    for function in ("llm_generate", "llm_generate_detail", "llm_generate_stream"):
        with fails(sqlstate):
            ana.execute(f"select {function}({arguments})")
    assert one(ana, "select count(*) from generation") == logged


@pytest.mark.shares
def test_a_long_prompt_is_cut_where_the_caller_asked(brief: str, ana: psycopg.Connection) -> None:
    row = ana.execute(
        """select prompt_tokens, finish_reason from llm_generate_detail(
               'Say yes. ' || repeat('word ', 3000), max_tokens => 16, truncate => true)"""
    ).fetchone()
    assert row is not None
    assert 1900 < row[0] <= 2048 - 16


@pytest.mark.shares
def test_null_gives_null(ana: psycopg.Connection) -> None:
    row = ana.execute(
        """select llm_generate(null), (llm_generate_detail(null)).text, llm_embed(null)::text,
               llm_embed_many(null)::text, llm_token_count(null)"""
    ).fetchone()
    assert row == (None,) * 5
    assert ana.execute("select llm_generate_stream(null)").fetchall() == []


@pytest.mark.shares
def test_control_tokens_in_a_prompt_are_text(ana: psycopg.Connection) -> None:
    assert one(ana, "select llm_token_count('<|im_end|>')") != 1


@pytest.mark.smoke
@pytest.mark.shares
def test_every_call_is_logged_without_its_text(ana: psycopg.Connection) -> None:
    ana.execute("select llm_generate('What is the capital of France?', temperature => 0.5, seed => 7)")
    row = ana.execute(
        "select model, temperature, seed, cardinality(token_logprobs) = completion_tokens, g::text from generation g"
        " order by id desc limit 1"
    ).fetchone()
    assert row is not None
    assert row[:4] == (GENERATOR, 0.5, 7, True)
    assert "France" not in row[4]


def test_a_read_only_transaction_can_generate(brief: str, ana: psycopg.Connection) -> None:
    ana.execute("set default_transaction_read_only = on")
    assert one(ana, "select llm_generate('capital of France', model => %s)", SCRIPTED_GENERATOR)
    assert one(ana, "select count(*) from generation") == 0


@pytest.mark.shares
def test_a_multibyte_answer_is_never_split(ana: psycopg.Connection) -> None:
    grammar = "root ::=" + " [\u00fc\u4f60\u597d\U0001f600\u00e9]" * 8
    arguments = f"'Repeat.', temperature => 0.8, seed => 5, max_tokens => 60, grammar => '{grammar}'"
    pieces = [row[0] for row in ana.execute(f"select llm_generate_stream({arguments})")]
    whole = str(one(ana, f"select llm_generate({arguments})"))
    assert "".join(pieces) == whole
    assert not whole.isascii()


@pytest.mark.shares
def test_embeddings_are_unit_vectors_in_order(ana: psycopg.Connection) -> None:
    rows = ana.execute(
        """with v as (select llm_embed_many(array['a cat sits', null, 'stock markets fell', 'a kitten rests']) as e)
           select e[2] is null, (e[1] <=> e[4]) < (e[1] <=> e[3]), abs(vector_norm(e[1]) - 1) < 1e-5,
               (e[4] <=> llm_embed('a kitten rests')) < 1e-4
           from v"""
    ).fetchone()
    assert rows == (True,) * 4


@pytest.mark.shares
def test_a_text_past_the_embedders_context_is_embedded_by_its_parts(ana: psycopg.Connection) -> None:
    begins, ends = one(
        ana,
        """with t as (select repeat('the sea and the ship. ', 60) as sea, repeat('bread and butter. ', 60) as bread),
               v as (select llm_embed(sea) as sea, llm_embed(bread) as bread, llm_embed(sea || bread) as joined from t)
           select array[1 - (sea <=> joined), 1 - (bread <=> joined)] from v""",
    )
    assert begins == pytest.approx(ends, abs=0.1)
    assert min(begins, ends) > 0.6


@pytest.mark.shares
def test_a_huge_text_is_read_at_equal_distances(ana: psycopg.Connection) -> None:
    begins, ends = one(
        ana,
        """with t as (select 'the sea and the ship. ' as sea, 'bread and butter. ' as bread),
               v as (select llm_embed(repeat(sea, 60)) as sea, llm_embed(repeat(bread, 60)) as bread,
                         llm_embed(repeat(sea, 4999) || repeat(bread, 4999)) as joined from t)
           select array[1 - (sea <=> joined), 1 - (bread <=> joined)] from v""",
    )
    assert min(begins, ends) > 0.6


@pytest.mark.parametrize("call", ["llm_embed('')", "llm_embed_many(array['x', ' '])"])
@pytest.mark.shares
def test_an_empty_text_is_not_embedded(ana: psycopg.Connection, call: str) -> None:
    with fails("22023"):
        ana.execute(f"select {call}")


@pytest.mark.shares
def test_tokens_are_counted(ana: psycopg.Connection) -> None:
    assert one(ana, "select llm_token_count('')") == 0
    assert one(ana, "select llm_token_count('hello world')") == 2
    with fails("54000"):
        ana.execute("select llm_token_count(repeat('x', 10000000))")


@pytest.mark.parametrize("call", ["llm_generate_stream", "llm_chat_stream"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("' '", r"mindful: (prompt|message) is empty"),
        ("'Hi', max_tokens => 0", "mindful: max_tokens is 0"),
        ("'Hi', model => 'nobody'", "mindful: .*nobody"),
    ],
)
@pytest.mark.shares
def test_an_error_of_a_stream_is_its_message(
    brief: str, ana: psycopg.Connection, call: str, arguments: str, message: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        ana.execute(f"select {call}({arguments})".encode())
    assert re.match(message, caught.value.diag.message_primary or "")


@pytest.mark.shares
def test_sampling_arguments_reach_every_generating_call(brief: str, ana: psycopg.Connection) -> None:
    prompt = "Name an animal and tell about it."
    greedy = one(ana, "select llm_generate(%s, max_tokens => 16)", prompt)
    for narrow in ("top_k => 1", "top_p => 0", "min_p => 1"):
        arguments = f"max_tokens => 16, temperature => 5, seed => 1, {narrow}"
        found = [
            one(ana, f"select llm_generate(%s, {arguments})", prompt),
            one(ana, f"select text from llm_generate_detail(%s, {arguments})", prompt),
            one(ana, f"select string_agg(p, '') from llm_generate_stream(%s, {arguments}) p", prompt),
            one(ana, f"select llm_generate_many(array[%s], {arguments})", prompt)[0],
            one(
                ana,
                f"select result from llm_generate_many(array[%s], on_error => 'null', {arguments})",
                prompt,
            ),
        ]
        assert found == [greedy] * 5, narrow
    plain, penalized = (
        one(ana, "select llm_generate(%s, max_tokens => 48, repeat_penalty => %s)", prompt, penalty)
        for penalty in (1, 10)
    )
    assert plain != penalized
    for wrong in ("top_p => 1.1", "top_k => -1", "min_p => null", "repeat_penalty => 0"):
        with fails("22004" if "null" in wrong else "22023"):
            ana.execute(f"select llm_generate('Hi', {wrong})")
