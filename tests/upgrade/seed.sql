-- Rows for every table, for every released version. The server's Python is of the newest version and refuses to work
-- for another, so this is plain SQL, and row_security = off keeps the triggers still, as in a dump.
set row_security = off;

insert into mindful.model (name, kind, provider, source, options, sha256, context_length, dims, is_default)
values
    ('seed', 'generator', 'scripted', '', '{"default": "It is so."}', 'cafe', 2048, null, true),
    ('seed-embedder', 'embedder', 'scripted', '', '{"dims": 8}', 'beef', null, 8, true);
select mindful._embedding_table_create('seed-embedder', 8);

insert into mindful.session (session_id, title, system_prompt, metadata)
values ('00000000-0000-0000-0000-000000000001', 'Seed', 'Be brief.', '{"seed": true}');

insert into mindful.memory (kind, content, metadata, source, source_key)
values
    ('fact', 'The spare key lies under the third flowerpot.', '{"topic": "house"}', null, null),
    ('document', 'Printer on floor 3 has no toner.', '{}', 'shop.ticket', '1');
insert into mindful.memory (kind, session_id, turn, role, content)
values
    ('message', '00000000-0000-0000-0000-000000000001', 1, 'user', 'Where is the spare key?'),
    ('message', '00000000-0000-0000-0000-000000000001', 2, 'assistant', 'Under the third flowerpot.');

insert into mindful.memory_embedding_seed_embedder (tenant, id, embedding, content_hash)
select tenant, id, mindful._vector('[1,0,0,0,0,0,0,0]'), content_hash from mindful.memory;
insert into mindful.memory_term (tenant, lexeme, id, frequency, length)
select m.tenant, t.lexeme, m.id, t.frequency, t.length
from mindful.memory m cross join lateral mindful._terms(m.content) t;
insert into mindful.memory_count (tenant, memories, lexemes)
select tenant, count(*), sum(mindful._length(content)) from mindful.memory group by tenant;

insert into mindful.generation (
    model, model_sha256, temperature, max_tokens, prompt_sha256, memory_ids, prompt_tokens, cached_tokens,
    completion_tokens, finish_reason, total_ms, confidence, signals, token_logprobs
)
values ('seed', 'cafe', 0, 256, 'f00d', '{1}', 12, 0, 2, 'stop', 5, 0.9, '{"tokens": 2}', '{-0.1,-0.2}');
insert into mindful.review (message_id, reviewer, prompt_version, score, verdict, signals, total_ms)
select id, 'seed', 1, 0.75, 'supported', '{}', 5 from mindful.memory where role = 'assistant';

create schema shop;
create table shop.ticket (id int primary key, body text);
insert into mindful.attachment (relation, source, content, mode) values ('shop.ticket', 'shop.ticket', 'body', 'sync');
