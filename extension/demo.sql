-- Two users, a chapter of PostgreSQL's manual, an application's table. It may be run again: it starts afresh.
\set QUIET on
\pset pager off
\pset footer off
\pset linestyle unicode
\pset border 2
\set manual `cat "$MANUAL"`
set client_min_messages = warning;
do $$
begin
    create role demo_ana login;
    create role demo_bob login;
exception when duplicate_object then
    null;
end
$$;
grant mindful_user to demo_ana, demo_bob;
drop schema if exists demo cascade;
create schema demo authorization demo_ana;
\c - demo_bob
do $$ begin perform memory_forget(everything => true); end $$;
\c - demo_ana
do $$ begin perform memory_forget(everything => true); end $$;

\set ECHO queries
\echo '\n── Ana talks; every turn is embedded and remembered ──\n'
select session_start(title => 'Getting to know Ana') as ana_session \gset
select message_insert_many(:'ana_session', $$[
    {"role": "user", "content": "My dog is called Rex, he is a beagle."},
    {"role": "assistant", "content": "Rex is a fine name."},
    {"role": "user", "content": "My sister Marta lives in Toronto and works as a nurse."},
    {"role": "assistant", "content": "Toronto is a lively city."},
    {"role": "user", "content": "I am allergic to peanuts."}
]$$) as message_id;

\echo '\n── So does Bob, on a connection of his own ──\n'
\c - demo_bob
select session_start(title => 'Getting to know Bob') as bob_session \gset
select message_insert(:'bob_session', 'user', 'My cat is called Misha and hates the vacuum cleaner.') as message_id;

\echo '\n── Ana adds a chapter of the PostgreSQL manual, paragraph by paragraph ──\n'
\c - demo_ana
\set ECHO none
create temporary table chapter as
select row_number() over () as n, btrim(regexp_replace(array_to_string(xpath('//text()', p), ''), '\s+', ' ', 'g')) as paragraph
from unnest(xpath('//h:p', xmlparse(document :'manual'), array[array['h', 'http://www.w3.org/1999/xhtml']])) p;
\set ECHO queries
select count(id) as paragraphs_remembered
from memory_insert_many((
    select jsonb_agg(jsonb_build_object('content', paragraph, 'kind', 'document',
        'source', 'PostgreSQL manual, Routine Vacuuming', 'source_key', n::text))
    from chapter where length(paragraph) > 120
)) as id;

\echo '\n── A second connection recalls: by meaning and by words, each part of the score shown ──\n'
\c - demo_ana
select left(content, 72) as content, kind, round(score::numeric, 2) as score,
    round(similarity::numeric, 2) as similarity, round(bm25::numeric, 1) as bm25
from memory_recall('How do I avoid losing data when transaction IDs run out?', k => 3);

\echo '\n── A chat that uses what was said before, and says how sure it is ──\n'
select reply, round(confidence::numeric, 2) as confidence, message_id, memory_ids, completion_tokens as tokens,
    round(total_ms) as ms
from llm_chat_detail('What is the name of my dog?') \gset answer_
\set ECHO none
select :'answer_reply' as reply, :answer_confidence as confidence, :'answer_memory_ids' as memory_ids,
    :answer_tokens as tokens, :answer_ms as ms;
\set ECHO queries
select content as the_memory_it_was_shown from memory where id = any (:'answer_memory_ids');

\echo '\n── The model looks at its answer again ──\n'
select round(score::numeric, 2) as score, verdict, signals from self_review(:answer_message_id);

\echo '\n── An ordinary table of an application: its rows are remembered by trigger ──\n'
create table demo.ticket (id integer primary key, subject text, body text);
select memory_attach('demo.ticket', $$subject || ': ' || body$$);
insert into demo.ticket values
    (1, 'Printer', 'The printer on the third floor is out of toner.'),
    (2, 'VPN', 'I cannot connect from home since this morning.');
select content, source, round(similarity::numeric, 2) as similarity from memory_recall('trouble connecting from home', k => 1);

\echo '\n── Bob asks for the same; he sees his own memories and nobody else''s ──\n'
\c - demo_bob
select left(content, 60) as content, round(score::numeric, 2) as score from memory_recall('What is the name of my pet?', k => 5);
select (select count(*) from memory) as his_memories, (select count(*) from memory where content like '%Rex%') as about_rex;
select llm_chat('What is the name of my cat?') as reply;

\echo '\n── What it cost, for whoever pays ──\n'
\c - demo_ana
select day, model, generations, prompt_tokens, completion_tokens, round(mean_total_ms) as mean_ms from model_usage;
