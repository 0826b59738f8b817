create table generation (
    tenant text not null default _tenant(),
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
comment on table generation is 'One row per call of a generator: what it cost and how sure it was. It holds no text.';
comment on column generation.parent_id is 'The generation that this one is a second attempt at, or a review of.';
comment on column generation.memory_ids is 'The memories that the prompt showed.';
comment on column generation.cached_tokens is 'Prompt tokens that did not have to be evaluated, as this connection had seen them before.';
comment on column generation.slot_wait_ms is 'How long the call waited for a slot (see the setting model_slots), before and while it ran.';
comment on column generation.confidence is 'exp of the mean log-probability of the tokens: ranks answers, but is not calibrated.';
comment on column generation.signals is 'Log-probabilities (nats), entropies (nats) and margins of the tokens, summed up; see llm_generate_detail.';
comment on column generation.token_logprobs is 'Log-probability (nats) of each sampled token, the end token included, at temperature 1.';

alter table generation enable row level security, force row level security;
create policy own on generation using (tenant = (select mindful._tenant()))
    with check (tenant = (select mindful._tenant_claimed()) and role = current_user);
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
    grammar text default null
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_generate
return llm_generate(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'Answers a prompt with a generator (NULL: the default one). A NULL prompt gives NULL. At most max_tokens tokens are made; temperature 0 always takes the likeliest token; a seed makes a call give the same text again on the same machine, at the price of evaluating the whole prompt anew. Generation ends at any of the stop strings, which are not returned. A prompt longer than the model''s context is error 54000, or is cut at its end where truncate is true. With json_schema (see llm_extract) the answer is JSON that fits it, or error 54000 (not complete after max_tokens, or a schema or grammar that is too large or too ambiguous) or 22000; say in the prompt what is wanted, as the model does not read the schema. A grammar is GBNF, as llama.cpp has it, and begins with the rule root. Other errors: 22023 (bad argument, schema or grammar), 42704 (no such model), 57014 (cancelled).';

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
comment on type generation_detail is 'An answer, what it cost, and how sure the model was.';

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
    grammar text default null
) returns generation_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_generate_detail
return llm_generate_detail(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate_detail(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'As llm_generate, with what the call cost and how sure the model was. Confidence is exp(mean log-probability of the tokens), in (0, 1], not calibrated. Signals: logprob_sum, logprob_mean, logprob_min, logprob_first (nats), entropy_mean, entropy_max (nats), margin_min (difference of the two best probabilities), tokens. finish_reason is stop or length. A NULL prompt gives NULLs.';

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
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_stream
return llm_stream(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'As llm_generate, one row per piece of text as it is made, never half a character. The rows arrive one by one where the function stands in the select list and is read through a cursor (psql: \set FETCH_COUNT 1). An answer that does not fit json_schema is an error at its end. A NULL prompt gives no rows.';

create function llm_embed(content text, model text default null) returns vector
language plpython3u stable parallel restricted security invoker cost 10000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_embed
return llm_embed(content, model)
$python$;
comment on function llm_embed(text, text) is
'Embeds a text as a unit vector with an embedder (NULL: the default one). NULL gives NULL. A text past the embedder''s context is cut. In a query that orders by distance, write (SELECT llm_embed(...)), or the model runs once per row. Errors: 22023 (empty text), 42704 (no such model).';

create function llm_embed_many(contents text[], model text default null) returns vector[]
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_embed_many
return llm_embed_many(contents, model)
$python$;
comment on function llm_embed_many(text[], text) is
'Embeds texts in batches, many times faster than one by one; the vectors stand in the order of the texts, NULL for NULL. A NULL array gives NULL. Errors as llm_embed.';

create function llm_token_count(content text, model text default null) returns integer
language plpython3u stable parallel restricted security invoker cost 1000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_token_count
return llm_token_count(content, model)
$python$;
comment on function llm_token_count(text, text) is
'Counts the tokens of a text for a generator (NULL: the default one), without the chat template''s own. NULL gives NULL.';

