create function llm_generate_many(
    prompts text[],
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns text[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.batch import llm_generate_many
return llm_generate_many(prompts, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate_many(text[], text, integer, real, integer, text, text[], boolean, jsonb, text) is
'As llm_generate for many prompts, evaluated side by side, which makes more tokens a second than one call after the other; what the prompts begin with alike is evaluated once. The answers stand in the order of the prompts, NULL for NULL; a NULL array gives NULL. The n-th prompt is sampled with the seed plus n - 1. Answers can differ from those of single calls where two tokens are all but equally likely, as sums are rounded in another order. Nothing is returned before the last answer is complete. Errors as llm_generate; the message says which prompt it is about.';

