create table generation (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    parent_id bigint,
    model text not null,
    model_sha256 text not null,
    temperature real not null,
    seed integer,
    max_tokens integer not null,
    prompt_sha256 text not null,
    memory_ids bigint[] not null default '{}',
    prompt_tokens integer not null,
    cached_tokens integer not null,
    completion_tokens integer not null,
    finish_reason text not null check (finish_reason in ('stop', 'length')),
    first_token_ms real,
    total_ms real not null,
    confidence real not null check (confidence between 0 and 1),
    signals jsonb not null,
    token_logprobs real[] not null,
    role text not null default current_user,
    created_at timestamptz not null default now(),
    slot_wait_ms real not null default 0,
    primary key (tenant, id),
    foreign key (tenant, parent_id) references generation on delete set null (parent_id)
);
comment on table generation is 'One row per call of a generator: cost, sampling and confidence. It holds no text.';
comment on column generation.parent_id is 'The generation that this one reviews or retries.';
comment on column generation.memory_ids is 'Memories in the prompt.';
comment on column generation.cached_tokens is
'Number of prompt tokens that were in the connection''s cache and were not evaluated again.';
comment on column generation.slot_wait_ms is
'Time in milliseconds that the call waited for slots (setting model_slots), before and during generation.';
comment on column generation.confidence is 'exp(mean log-probability of the tokens). It ranks answers; it is not calibrated.';
comment on column generation.signals is
'Aggregates of the tokens'' log-probabilities (nats), entropies (nats) and margins; see llm_generate_detail.';
comment on column generation.token_logprobs is
'Log-probability (nats) of each sampled token at temperature 1, the end token included.';

alter table generation enable row level security, force row level security;
create policy own on generation using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()) and role = current_user);
select pg_catalog.pg_extension_config_dump('mindful.generation', '');
select pg_catalog.pg_extension_config_dump('mindful.generation_id_seq', '');

create function llm_generate(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null,
    top_p double precision default 0.95,
    top_k integer default 40,
    min_p double precision default 0.05,
    presence_penalty double precision default 0,
    frequency_penalty double precision default 0,
    repeat_penalty double precision default 1
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_generate
return llm_generate(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty)
$python$;
comment on function llm_generate(text, text, integer, real, integer, text, text[], boolean, jsonb, text, double precision, integer, double precision, double precision, double precision, double precision) is
'Generates an answer to a prompt with a generator (NULL: the default one). NULL gives NULL. json_schema or grammar restricts the answer. Errors: 22000 (answer and schema do not fit), 22004, 22023, 42704 (no such model), 54000 (too long), 55P03 (no free slot), 57014 (cancelled). Example: select llm_generate(''Answer yes or no: is Rome in Italy?'', grammar => ''root ::= "yes" | "no"'');';

create type generation_detail as (
    text text,
    model text,
    prompt_tokens integer,
    cached_tokens integer,
    completion_tokens integer,
    finish_reason text,
    confidence real,
    signals jsonb,
    first_token_ms real,
    total_ms real
);
comment on type generation_detail is 'Result of llm_generate_detail: an answer with its cost and confidence.';

create function llm_generate_detail(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null,
    top_p double precision default 0.95,
    top_k integer default 40,
    min_p double precision default 0.05,
    presence_penalty double precision default 0,
    frequency_penalty double precision default 0,
    repeat_penalty double precision default 1
) returns generation_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_generate_detail
return llm_generate_detail(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty)
$python$;
comment on function llm_generate_detail(text, text, integer, real, integer, text, text[], boolean, jsonb, text, double precision, integer, double precision, double precision, double precision, double precision) is
'Generates an answer as llm_generate does, and returns it with its cost and confidence. confidence is exp(mean log-probability of the tokens), in (0, 1]; it is not calibrated. finish_reason is stop or length. A NULL prompt gives NULLs. Errors as llm_generate. Example: select text, confidence from llm_generate_detail(''Who wrote Hamlet?'');';

create function llm_generate_stream(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null,
    top_p double precision default 0.95,
    top_k integer default 40,
    min_p double precision default 0.05,
    presence_penalty double precision default 0,
    frequency_penalty double precision default 0,
    repeat_penalty double precision default 1
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_generate_stream
return llm_generate_stream(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty)
$python$;
comment on function llm_generate_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text, double precision, integer, double precision, double precision, double precision, double precision) is
'Generates an answer as llm_generate does, and returns it as one row per piece of text. A piece holds whole characters. Call it in the select list and read it through a cursor, so that each row arrives when it is generated. A NULL prompt gives no rows. Errors as llm_generate. Example: select llm_generate_stream(''Tell me a story.'');';

create function llm_stream(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns setof text
language sql volatile parallel unsafe security invoker cost 100000 rows 100
begin atomic
    select _mindful.deprecated('llm_stream', 'llm_generate_stream');
    select mindful.llm_generate_stream(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar);
end;
comment on function llm_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'Deprecated name of llm_generate_stream, kept until version 0.4.0.';

create function llm_embed(content text, model text default null) returns vector
language plpython3u stable parallel unsafe security invoker cost 10000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_embed
return llm_embed(content, model)
$python$;
comment on function llm_embed(text, text) is
'Embeds a text as a unit vector with an embedder (NULL: the default one). NULL gives NULL. A text longer than the context has the mean of its parts'' vectors. Errors: 22023 (empty text), 54000 (more than 256 KiB), 42704 (no such model), 55000 (no default embedder), 55P03 (no free slot), 57014 (cancelled). Example: select llm_embed(''a cat'') <=> llm_embed(''a kitten'') as cosine_distance;';

create function llm_embed_many(contents text[], model text default null) returns vector[]
language plpython3u stable parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_embed_many
return llm_embed_many(contents, model)
$python$;
comment on function llm_embed_many(text[], text) is
'Embeds texts in batches, which is much faster than single calls, and returns the vectors in the order of the texts. A NULL element gives NULL, a NULL array gives NULL. Errors as llm_embed.';

create function llm_token_count(content text, model text default null) returns integer
language plpython3u stable parallel unsafe security invoker cost 1000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.llm import llm_token_count
return llm_token_count(content, model)
$python$;
comment on function llm_token_count(text, text) is
'Returns the number of tokens of a text for a generator or an embedder (NULL: the default generator), without special tokens. NULL gives NULL. Errors: 42704 (no such model), 54000 (more than 262144 bytes), 55000 (no default generator).';

create view model_usage with (security_barrier = true) as
select created_at::date as day, tenant, model, role, count(*) as generations, sum(prompt_tokens) as prompt_tokens,
    sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens,
    avg(first_token_ms) as mean_first_token_ms, avg(total_ms) as mean_total_ms,
    count(*) filter (where finish_reason = 'length') as cut_by_length,
    count(*) filter (where finish_reason = 'stop') as ended, avg(slot_wait_ms) as mean_slot_wait_ms,
    max(slot_wait_ms) as max_slot_wait_ms,
    (select case when m.options ? 'served' then 'openai' else m.provider end
     from mindful.model m where m.name = generation.model) as provider,
    (select regexp_replace(coalesce(m.options #>> '{served,address}', m.source), '//[^/@]*@', '//')
     from mindful.model m
     where m.name = generation.model and (m.provider = 'openai' or m.options ? 'served')) as address
from mindful.generation
where tenant = (select _mindful.tenant()) or (select _mindful.reads_all())
group by created_at::date, tenant, model, role;
comment on view model_usage is
'Calls of generators that the table generation keeps, by day, tenant, model and role. Times are in milliseconds. provider and address are those of the model now. Forgetting an answer and retention_audit_days remove calls, so sums over days can fall. Shows the caller''s tenant, to mindful_reader all tenants. Example: select day, model, generations from model_usage;';
