"""Kept states of conversations: another connection goes on from them, and nothing wrong is ever used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import Cluster, Connect, fails
from support.deletion import delete

pytestmark = pytest.mark.usefixtures("brief", "scripted", "nothing_kept")

HISTORY = [
    {"role": "user", "content": "Who keeps the lighthouse, and what does he write down in the evening?"},
    {
        "role": "assistant",
        "content": "The keeper is called Tom. He writes down the weather, the ships that passed, "
        "what he had for dinner, and the names of the birds that he saw from the gallery.",
    },
    {"role": "user", "content": "What did he see on the first of May, when the storm was over?"},
    {
        "role": "assistant",
        "content": "Two gulls, one tern, and a ship with red sails that went to the north.",
    },
]
OTHER = [message | {"content": message["content"].replace("Tom", "Ada")} for message in HISTORY]


@dataclass(frozen=True)
class Answer:
    """A reply, how it came about, and the log-probabilities of its tokens."""

    reply: str
    prompt_tokens: int
    cached_tokens: int
    logprobs: list[float]


def start(connection: psycopg.Connection, history: list[dict[str, str]] = HISTORY) -> str:
    (session_id,) = connection.execute("select session_start()").fetchone() or ()
    connection.execute("select message_insert_many(%s, %s)", (session_id, Jsonb(history)))
    return str(session_id)


def chat(connection: psycopg.Connection, session_id: str, seed: int | None = None) -> Answer:
    """Say the next thing in a session."""
    reply, prompt_tokens, cached_tokens = (
        connection.execute(
            """select reply, prompt_tokens, cached_tokens
               from llm_chat_detail('And then?', %s, max_tokens => 8, seed => %s, memories => 0)""",
            (session_id, seed),
        ).fetchone()
        or ()
    )
    (logprobs,) = (
        connection.execute("select token_logprobs from generation order by id desc limit 1").fetchone() or ()
    )
    return Answer(reply, prompt_tokens, cached_tokens, logprobs)


def peek(connection: psycopg.Connection, session_id: str, without: str = "false") -> Answer:
    """Say the next thing, and take it back; `without` the states that a condition describes."""
    with connection.transaction(force_rollback=True):
        delete(connection, "kv_state", without)
        return chat(connection, session_id)


def unloaded(connection: psycopg.Connection) -> psycopg.Connection:
    """Have a connection hold no more than a new one does, but for Python's modules."""
    connection.execute("select model_unload()")
    return connection


def kept(connection: psycopg.Connection) -> list[tuple[str, int]]:
    """The kept parts, and how many tokens they have."""
    found = connection.execute(
        "select session_id::text, cardinality(tokens) from kv_state order by used_at, session_id, first"
    ).fetchall()
    return [(session, tokens) for session, tokens in found]


@pytest.fixture
def nothing_kept(db: psycopg.Connection) -> None:
    """No state is left of the tests before."""
    db.execute("truncate kv_state")


@pytest.fixture(scope="module")
def second_of(cluster: Cluster, roles: Mapping[str, str]) -> Iterator[Callable[[str], psycopg.Connection]]:
    """Gives a database's second connection of ana's, which has Python's modules loaded after its first test."""
    made: dict[str, psycopg.Connection] = {}
    with ExitStack() as opened:

        def of(name: str) -> psycopg.Connection:
            if name not in made:
                made[name] = opened.enter_context(cluster.connect(name, roles["ana"]))
            made[name].execute("reset all")
            return made[name]

        yield of


@pytest.fixture
def elsewhere(
    entrance: str, second_of: Callable[[str], psycopg.Connection]
) -> Callable[[], psycopg.Connection]:
    """Gives another connection of ana's, which holds no more than a new one."""
    return lambda: unloaded(second_of(entrance))


@pytest.fixture
def limit(db: psycopg.Connection) -> Iterator[Callable[[bool, int, int], None]]:
    """Sets the limits of the test's database, for this test."""
    before = db.execute("select pg_get_functiondef('_mindful.kv_state_limits'::regproc)").fetchone() or ("",)

    def replace(enabled: bool, tenant_bytes: int, total_bytes: int) -> None:
        db.execute(
            f"""create or replace function _mindful.kv_state_limits(
                out enabled boolean, out tenant_bytes bigint, out total_bytes bigint)
            language sql immutable parallel safe security invoker
            begin atomic select {enabled}, {tenant_bytes}::bigint, {total_bytes}::bigint; end""".encode()
        )

    yield replace
    db.execute(before[0].encode())


@pytest.fixture
def session(ana: psycopg.Connection) -> str:
    """A conversation of ana's whose state is kept."""
    session_id = start(ana)
    chat(ana, session_id)
    assert kept(ana) != []
    return session_id


@pytest.mark.shares
def test_another_connection_goes_on_from_the_kept_state(
    session: str, ana: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    ((_, tokens),) = kept(ana)
    answer = peek(elsewhere(), session)
    assert answer.cached_tokens == tokens > 100
    assert answer.prompt_tokens - tokens < 30
    # To the last bit what the connection that has never stopped would say.
    assert answer == peek(ana, session)


@pytest.fixture
def flash_attention(db: psycopg.Connection) -> Iterator[Callable[[], None]]:
    """Turns it on, for this test."""
    set_options = "update model set options = options {} where kind = 'generator' and is_default"

    def turn_on() -> None:
        db.execute(set_options.format("""|| '{"flash_attention": true}'""").encode())

    yield turn_on
    db.execute(set_options.format("- 'flash_attention'").encode())


@pytest.mark.shares
def test_with_flash_attention_states_are_kept_of_their_own(
    session: str,
    flash_attention: Callable[[], None],
    ana: psycopg.Connection,
    elsewhere: Callable[[], psycopg.Connection],
) -> None:
    without = peek(elsewhere(), session)
    flash_attention()
    anew = chat(elsewhere(), session)
    assert (without.cached_tokens > 100, anew.cached_tokens) == (True, 0)
    assert anew.logprobs[0] == pytest.approx(without.logprobs[0], abs=0.1)
    answer = peek(elsewhere(), session)
    assert answer.cached_tokens > 100
    assert answer == peek(unloaded(ana), session)


@pytest.mark.shares
def test_the_answer_is_that_of_a_connection_without_the_cache(
    session: str, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    with_state, without = peek(elsewhere(), session), peek(elsewhere(), session, without="true")
    assert (with_state.cached_tokens > 0, without.cached_tokens) == (True, 0)
    # The last bits may differ, as batches have other shapes; so may a word that was as likely as another.
    assert with_state.logprobs[0] == pytest.approx(without.logprobs[0], abs=0.1)


@pytest.mark.shares
def test_a_seed_leaves_the_cache_aside_and_repeats_exactly(
    session: str, ana: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    with ana.transaction(force_rollback=True):
        warm = chat(ana, session, seed=1)
    other = elsewhere()
    with other.transaction(force_rollback=True):
        assert chat(other, session, seed=1) == warm
    assert warm.cached_tokens == 0


@pytest.mark.shares
def test_each_turn_adds_what_is_new(
    session: str, ana: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    ((_, first),) = kept(ana)
    for _ in range(4):
        ana.execute(
            "select message_insert_many(%s, %s)",
            (
                session,
                Jsonb([{"role": "user", "content": "word " * 40}, {"role": "assistant", "content": "yes"}]),
            ),
        )
        chat(ana, session)
    parts = [tokens for _, tokens in kept(ana)]
    assert parts[0] == first
    assert len(parts) == 5
    assert peek(elsewhere(), session).cached_tokens == sum(parts)


@pytest.mark.shares
def test_notes_are_shown_for_one_turn_and_not_kept(
    ana: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    ana.execute("select memory_insert('The lighthouse burns colza oil and its lamp was made in Paris.')")
    session_id = start(ana)
    message = "What oil does the lamp of the lighthouse burn?"
    shown, prompt_tokens = (
        ana.execute(
            "select cardinality(memory_ids), prompt_tokens from llm_chat_detail(%s, %s, max_tokens => 8)",
            (message, session_id),
        ).fetchone()
        or ()
    )
    assert shown >= 1
    ((_, tokens),) = kept(ana)
    assert 100 < tokens < prompt_tokens - 20
    assert peek(elsewhere(), session_id).cached_tokens == tokens


@pytest.mark.shares
def test_a_short_chat_is_not_worth_a_state(ana: psycopg.Connection) -> None:
    ana.execute("select llm_chat('Hi', max_tokens => 8)")
    assert kept(ana) == []


CHANGES = {
    "a flipped bit": "state = set_byte(state, 40000, get_byte(state, 40000) # 1)",
    "a flipped bit in its head": "state = set_byte(state, 0, get_byte(state, 0) # 255)",
    "a cut end": "state = substr(state, 1, octet_length(state) - 1)",
    "no end": "state = substr(state, 1, 64)",
    "nothing": "state = ''",
    "more than it was": "state = state || state",
    "noise": "state = decode(repeat(md5('noise'), 100000), 'hex')",
    "another's bytes": "state = (select o.state from kv_state o where o.session_id <> k.session_id limit 1)",
    "another's bytes and seal": "(state, mac) = (select o.state, o.mac from kv_state o"
    " where o.session_id <> k.session_id limit 1)",
    "another seal": "mac = set_byte(mac, 0, get_byte(mac, 0) # 1)",
    "no seal": "mac = ''",
    "tokens of the same number": "tokens = tokens[1:cardinality(tokens) - 1] || 7",
    "fewer tokens": "tokens = tokens[1:cardinality(tokens) - 1]",
    "no tokens": "tokens = '{}'",
    "another place": "first = 3",
    "another fingerprint": "fingerprint = md5('')",
    "null tokens": "tokens = array_fill(null::integer, array[cardinality(tokens)])",
    "tokens in rows": "tokens = array[tokens]",
    "tokens from another index": "tokens = array_fill(7, array[cardinality(tokens)], array[-5])",
    "tokens of no vocabulary": "tokens = array_fill(-2147483648, array[cardinality(tokens)])",
    "the last place": "first = 2147483647",
    "another model": "model = 'scripted'",
}


@pytest.fixture(scope="module")
def computed() -> dict[str, Answer]:
    """The answers of a connection without a state, by what was said before: all tests go on from the same words."""
    return {}


def spoken(connection: psycopg.Connection, session_id: str) -> str:
    """All that was said in a session."""
    (said,) = connection.execute(
        "select string_agg(content, ' ' order by turn) from conversation where session_id = %s", (session_id,)
    ).fetchone() or ("",)
    return str(said)


@pytest.mark.shares
@pytest.mark.parametrize("change", CHANGES)
def test_a_state_that_was_tampered_with_is_not_used_and_replaced(
    change: str,
    session: str,
    computed: dict[str, Answer],
    ana: psycopg.Connection,
    db: psycopg.Connection,
    elsewhere: Callable[[], psycopg.Connection],
) -> None:
    if "another's" in change:
        chat(ana, start(ana, OTHER))
    said = spoken(ana, session)
    if said not in computed:
        computed[said] = peek(elsewhere(), session, without="true")
    db.execute(f"update kv_state k set {CHANGES[change]} where session_id = %s".encode(), (session,))
    assert chat(elsewhere(), session) == computed[said]
    assert computed[said].cached_tokens == 0
    assert peek(elsewhere(), session).cached_tokens > 100


@pytest.mark.shares
@pytest.mark.parametrize(
    "damage",
    ["delete from kv_state where first = 0", "delete from kv_state where first > 0", "rows of noise"],
)
def test_states_that_an_owner_took_or_added_cost_time_only(
    damage: str,
    session: str,
    ana: psycopg.Connection,
    db: psycopg.Connection,
    elsewhere: Callable[[], psycopg.Connection],
) -> None:
    ana.execute("select message_insert(%s, 'user', %s)", (session, "word " * 80))
    chat(ana, session)
    assert len(kept(ana)) == 2
    without = peek(elsewhere(), session, without="true")
    if damage == "rows of noise":
        db.execute(
            """insert into kv_state (tenant, session_id, model, first, fingerprint, tokens, state, mac)
               select k.tenant, k.session_id, k.model, k.first + g, k.fingerprint, k.tokens[1:g], k.state, k.mac
               from kv_state k, generate_series(1, 600, 7) g
               on conflict do nothing"""
        )
    else:
        db.execute(damage.encode())
    assert chat(elsewhere(), session).logprobs[0] == pytest.approx(without.logprobs[0], abs=0.1)
    assert peek(elsewhere(), session).cached_tokens > 100


@pytest.mark.shares
def test_a_state_does_not_move_between_sessions_models_or_tenants(
    session: str,
    ana: psycopg.Connection,
    bob: psycopg.Connection,
    db: psycopg.Connection,
    elsewhere: Callable[[], psycopg.Connection],
) -> None:
    # The same words everywhere: only the seal tells whose state it is.
    # To register it would load and try it first.
    db.execute(
        """insert into model select (jsonb_populate_record(m, '{"name": "twin", "is_default": false}')).*
           from model m where name = 'brief'"""
    )
    move = """insert into kv_state (tenant, session_id, model, first, fingerprint, tokens, state, mac)
        select %s, %s, %s, first, fingerprint, tokens, state, mac from kv_state where session_id = %s"""
    turns = HISTORY + [
        {"role": role, "content": content}
        for role, content in ana.execute(
            "select role, content from conversation where session_id = %s and turn > 4 order by turn",
            (session,),
        )
    ]
    tenant, other, of_bob = ana.info.user, start(ana, turns), start(bob, turns)
    db.execute(move, (tenant, other, "brief", session))
    db.execute(move, (bob.info.user, of_bob, "brief", session))
    db.execute(move, (tenant, session, "twin", session))
    assert peek(elsewhere(), session).cached_tokens > 100
    assert peek(elsewhere(), other).cached_tokens == 0
    assert peek(unloaded(bob), of_bob).cached_tokens == 0
    detail = "select cached_tokens from llm_chat_detail('And then?', %s, 'twin', 4, memories => 0)"
    assert elsewhere().execute(detail, (session,)).fetchone() == (0,)


@pytest.mark.shares
def test_a_tenant_cannot_forge_a_state(
    session: str, ana: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection], db: psycopg.Connection
) -> None:
    (tokens, fingerprint) = ana.execute("select tokens, fingerprint from kv_state").fetchone() or ()
    delete(ana, "kv_state")
    ana.execute(
        """insert into kv_state (session_id, model, first, fingerprint, tokens, state, mac)
           values (%s, %s, 0, %s, %s, decode(repeat('ff', 100000), 'hex'), sha256('x'))""",
        (session, "brief", fingerprint, tokens),
    )
    assert peek(elsewhere(), session).cached_tokens == 0


@pytest.mark.shares
def test_states_are_the_tenants_own(session: str, ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    assert kept(bob) == []
    assert delete(bob, "kv_state") == 0
    with fails("42501", hint=None):
        bob.execute(
            """insert into kv_state (tenant, session_id, model, first, fingerprint, tokens, state, mac)
               values (%s, %s, 'x', 0, 'x', '{}', '', '')""",
            (ana.info.user, session),
        )
    with fails("23503", hint=None):  # nor is anybody else's session bob's
        bob.execute(
            """insert into kv_state (session_id, model, first, fingerprint, tokens, state, mac)
               values (%s, 'x', 0, 'x', '{}', '', '')""",
            (session,),
        )


@pytest.mark.shares
def test_the_time_of_use_decides_what_leaves_first_and_nothing_else(
    session: str, ana: psycopg.Connection, db: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    ((_, tokens),) = kept(ana)
    db.execute("update kv_state set used_at = '9999-01-01'")
    assert peek(elsewhere(), session).cached_tokens == tokens
    for statement in (
        "update kv_state set used_at = now()",
        "insert into kv_state (session_id, model, first, fingerprint, tokens, state, mac, used_at)"
        " select session_id, model, 600, fingerprint, tokens, state, mac, '9999-01-01' from kv_state",
    ):
        with fails("42501", hint=None):
            ana.execute(statement)


@pytest.mark.shares
@pytest.mark.parametrize("role", ["admin", "reader"])
def test_others_see_no_states(session: str, role: str, connect: Connect) -> None:
    with fails("42501", hint=None):
        connect(role).execute("select * from kv_state")


@pytest.mark.shares
def test_what_was_said_and_taken_back_is_no_prefix_of_another_tenants(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    detail = "select cached_tokens from llm_chat_detail(%s, max_tokens => 2, memories => 0)"
    secret = "The safe opens with 4711. " * 12
    with db.transaction(force_rollback=True):
        db.execute(f'set role "{ana.info.user}"'.encode())
        db.execute(detail, (secret,))
    assert db.execute("select count(*) from kv_state").fetchone() == (0,)
    db.execute(f'set role "{bob.info.user}"'.encode())
    assert db.execute(detail, (secret,)).fetchone() == (0,)
    (again,) = db.execute(detail, (secret,)).fetchone() or ()
    assert again > 60


@pytest.mark.shares
def test_a_session_takes_its_states_along(session: str, ana: psycopg.Connection) -> None:
    delete(ana, "session", "session_id = %s", session)
    assert kept(ana) == []


@pytest.mark.shares
def test_a_lost_cache_costs_time_only(
    session: str, db: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    before = peek(elsewhere(), session, without="true")
    db.execute("truncate kv_state")
    assert chat(elsewhere(), session) == before
    assert peek(elsewhere(), session).cached_tokens > 100


@pytest.mark.shares
def test_the_longest_unused_leave_first(
    session: str,
    ana: psycopg.Connection,
    bob: psycopg.Connection,
    db: psycopg.Connection,
    limit: Callable[[bool, int, int], None],
) -> None:
    (size,) = db.execute("select sum(octet_length(state)) from kv_state").fetchone() or ()
    limit(True, int(size * 2.5), int(size * 3.5))
    second, third = start(ana), start(ana)
    chat(ana, second)
    assert [kept_session for kept_session, _ in kept(ana)] == [session, second]
    chat(ana, third)
    assert [kept_session for kept_session, _ in kept(ana)] == [second, third]
    for _ in range(2):
        chat(bob, start(bob))
    # Both are within the limit of a tenant; that of all leaves each of them the newest.
    assert {len(kept(ana)), len(kept(bob))} == {1, 2}


@pytest.mark.shares
def test_who_has_little_loses_nothing_to_who_adds_much(
    session: str,
    ana: psycopg.Connection,
    bob: psycopg.Connection,
    db: psycopg.Connection,
    limit: Callable[[bool, int, int], None],
) -> None:
    (size,) = db.execute("select sum(octet_length(state)) from kv_state").fetchone() or ()
    limit(True, size * 10, int(size * 2.5))
    for _ in range(3):
        chat(bob, start(bob))
    assert [kept_session for kept_session, _ in kept(ana)] == [session]
    assert len(kept(bob)) == 1


@pytest.mark.shares
def test_a_conversation_beyond_the_limit_is_not_kept(
    ana: psycopg.Connection, limit: Callable[[bool, int, int], None]
) -> None:
    limit(True, 10000, 1000000000)
    chat(ana, start(ana))
    assert kept(ana) == []


@pytest.mark.shares
def test_it_can_be_turned_off(
    session: str,
    ana: psycopg.Connection,
    elsewhere: Callable[[], psycopg.Connection],
    limit: Callable[[bool, int, int], None],
) -> None:
    limit(False, 1 << 30, 1 << 30)
    before = kept(ana)
    chat(ana, start(ana))
    assert kept(ana) == before
    assert peek(elsewhere(), session).cached_tokens == 0


def test_a_state_that_cannot_be_written_is_a_warning(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute("revoke insert on kv_state from mindful_user")
    notices: list[tuple[str | None, str | None, str | None]] = []
    ana.add_notice_handler(
        lambda found: notices.append((found.severity, found.message_primary, found.message_hint))
    )
    assert chat(ana, start(ana)).reply
    ((severity, message, hint),) = notices
    assert severity == "WARNING"
    assert "permission denied for table kv_state" in str(message)
    assert hint


@pytest.mark.shares
def test_reading_needs_no_right_to_write(
    session: str, ana: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    ana.execute("set default_transaction_read_only = on")
    assert ana.execute("select * from session_context(%s, 'And then?')", (session,)).fetchone()
    reader = elsewhere()
    reader.execute("set default_transaction_read_only = on")
    with fails("25006"):
        chat(reader, session)
    reader.execute("set default_transaction_read_only = off")
    assert chat(reader, session).cached_tokens > 100


@pytest.mark.shares
def test_two_connections_in_one_session_are_both_answered(
    session: str, ana: psycopg.Connection, elsewhere: Callable[[], psycopg.Connection]
) -> None:
    both = [unloaded(ana), elsewhere()]
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda connection: chat(connection, session), both))
    assert all(answer.reply for answer in answers)
    assert peek(elsewhere(), session).cached_tokens > 100


@pytest.mark.shares
def test_a_model_that_was_unloaded_while_a_cursor_rested_at_its_end_keeps_nothing(
    session: str, ana: psycopg.Connection
) -> None:
    before, pieces = kept(ana), 0
    ana.execute("select message_insert(%s, 'user', %s)", (session, "word " * 80))
    for unload in (False, True):
        ana.execute("select model_unload()")  # what its cache holds of the prompt rounds the answer otherwise
        with ana.transaction(force_rollback=True), ana.cursor(name="stream") as cursor:
            cursor.execute(
                "select llm_chat_stream('Tell a long story.', %s, max_tokens => 8, memories => 0)", (session,)
            )
            if unload:
                assert len(cursor.fetchmany(pieces)) == pieces
                ana.execute("select model_unload()")
                assert cursor.fetchall() == []
                assert kept(ana) == before
            else:
                pieces = len(cursor.fetchall())
                assert len(kept(ana)) > len(before)


@pytest.mark.shares
def test_it_is_a_cache(db: psycopg.Connection) -> None:
    assert db.execute(
        """select relpersistence, (select attstorage from pg_attribute
               where attrelid = c.oid and attname = 'state'), c.oid = any (extconfig)
           from pg_class c, pg_extension e
           where c.oid = 'mindful.kv_state'::regclass and e.extname = 'mindful'"""
    ).fetchone() == ("u", "e", False)
