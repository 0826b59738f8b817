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
    grammar text default null,
    top_p double precision default 0.95,
    top_k integer default 40,
    min_p double precision default 0.05,
    presence_penalty double precision default 0,
    frequency_penalty double precision default 0,
    repeat_penalty double precision default 1
) returns text[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.batch import llm_generate_many
return llm_generate_many(prompts, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty)
$python$;
comment on function llm_generate_many(text[], text, integer, real, integer, text, text[], boolean, jsonb, text, double precision, integer, double precision, double precision, double precision, double precision) is
'Answers many prompts as llm_generate does, in shared batches, and returns the answers in the order of the prompts. The n-th prompt uses the seed plus n - 1. A NULL element gives NULL, a NULL array gives NULL. Errors as llm_generate; the message has the position of the prompt. Example: select llm_generate_many(''{Name a color.,Name a fruit.}'', max_tokens => 8);';
