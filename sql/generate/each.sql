create type error_action as enum ('raise', 'null');
comment on type error_action is
'What a call over many texts does if one of them fails: raise ends the call, null gives NULL and the error beside it.';

create function _mindful.llm_generate_each(
    prompts text[],
    on_error text,
    model text,
    max_tokens integer,
    temperature real,
    seed integer,
    system_prompt text,
    stop text[],
    truncate boolean,
    json_schema jsonb,
    grammar text,
    top_p double precision,
    top_k integer,
    min_p double precision,
    presence_penalty double precision,
    frequency_penalty double precision,
    repeat_penalty double precision
) returns table (number integer, result text, error jsonb)
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.each import llm_generate_each
return llm_generate_each(prompts, on_error, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty)
$python$;
comment on function _mindful.llm_generate_each(text[], text, text, integer, real, integer, text, text[], boolean, jsonb, text, double precision, integer, double precision, double precision, double precision, double precision) is
'Answers many prompts with an error per row; see llm_generate_many with on_error.';

create function llm_generate_many(
    prompts text[],
    on_error error_action,
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
) returns table (number integer, result text, error jsonb)
language sql volatile parallel unsafe security invoker cost 1000000 rows 100
begin atomic
    select e.number, e.result, e.error from _mindful.llm_generate_each(prompts, on_error::text, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty) e;
end;
comment on function llm_generate_many(text[], error_action, text, integer, real, integer, text, text[], boolean, jsonb, text, double precision, integer, double precision, double precision, double precision, double precision) is
'Answers many prompts as llm_generate_many does, one row per prompt in their order. If on_error is ''null'', a prompt that fails gives a NULL result and its error; if it is ''raise'', the first failure ends the call. Pass on_error by name. Example: select number, result, error ->> ''message'' from llm_generate_many(''{Name a color.," "}'', max_tokens => 8, on_error => ''null'');';

create function _mindful.llm_extract_each(
    contents text[],
    json_schema jsonb,
    on_error text,
    instruction text,
    model text,
    max_tokens integer
) returns table (number integer, result jsonb, error jsonb)
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.each import llm_extract_each
return llm_extract_each(contents, json_schema, on_error, instruction, model, max_tokens)
$python$;
comment on function _mindful.llm_extract_each(text[], jsonb, text, text, text, integer) is
'Extracts JSON from many texts with an error per row; see llm_extract_many with on_error.';

create function llm_extract_many(
    contents text[],
    json_schema jsonb,
    on_error error_action,
    instruction text default null,
    model text default null,
    max_tokens integer default 512
) returns table (number integer, result jsonb, error jsonb)
language sql volatile parallel unsafe security invoker cost 1000000 rows 100
begin atomic
    select e.number, e.result, e.error from _mindful.llm_extract_each(contents, json_schema, on_error::text, instruction, model, max_tokens) e;
end;
comment on function llm_extract_many(text[], jsonb, error_action, text, text, integer) is
'Extracts JSON from many texts as llm_extract_many does, one row per text in their order. If on_error is ''null'', a text that fails gives a NULL result and its error; if it is ''raise'', the first failure ends the call. Pass on_error by name.';

create function _mindful.llm_classify_each(
    contents text[],
    labels text[],
    on_error text,
    instruction text,
    model text,
    subtract_prior boolean,
    descriptions jsonb,
    examples jsonb,
    classifier text
) returns table (number integer, result label_detail, error jsonb)
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.each import llm_classify_each
return llm_classify_each(contents, labels, on_error, instruction, model, subtract_prior, descriptions, examples, classifier)
$python$;
comment on function _mindful.llm_classify_each(text[], text[], text, text, text, boolean, jsonb, jsonb, text) is
'Classifies many texts with an error per row; see llm_classify_many with on_error.';

create function llm_classify_many(
    contents text[],
    labels text[],
    on_error error_action,
    instruction text default null,
    model text default null,
    subtract_prior boolean default true,
    descriptions jsonb default null,
    examples jsonb default null,
    classifier text default null
) returns table (number integer, result label_detail, error jsonb)
language sql volatile parallel unsafe security invoker cost 1000000 rows 100
begin atomic
    select e.number, e.result, e.error from _mindful.llm_classify_each(contents, labels, on_error::text, instruction, model, subtract_prior, descriptions, examples, classifier) e;
end;
comment on function llm_classify_many(text[], text[], error_action, text, text, boolean, jsonb, jsonb, text) is
'Classifies many texts as llm_classify_many does, one row per text in their order. If on_error is ''null'', a text that fails gives a NULL result and its error; if it is ''raise'', the first failure ends the call. Pass on_error by name. Example: select number, (result).label, error from llm_classify_many(''{Superb!,Awful.}'', ''{praise,complaint}'', on_error => ''null'');';

create function _mindful.llm_if_each(
    contents text[],
    condition text,
    on_error text,
    model text
) returns table (number integer, result boolean, error jsonb)
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.each import llm_if_each
return llm_if_each(contents, condition, on_error, model)
$python$;
comment on function _mindful.llm_if_each(text[], text, text, text) is
'Returns for many texts whether a statement is true of them with an error per row; see llm_if_many with on_error.';

create function llm_if_many(
    contents text[],
    condition text,
    on_error error_action,
    model text default null
) returns table (number integer, result boolean, error jsonb)
language sql volatile parallel unsafe security invoker cost 1000000 rows 100
begin atomic
    select e.number, e.result, e.error from _mindful.llm_if_each(contents, condition, on_error::text, model) e;
end;
comment on function llm_if_many(text[], text, error_action, text) is
'Returns for many texts whether a statement is true of them, as llm_if_many does, one row per text in their order. If on_error is ''null'', a text that fails gives a NULL result and its error; if it is ''raise'', the first failure ends the call. Pass on_error by name.';

create function _mindful.llm_embed_each(
    contents text[],
    on_error text,
    model text
) returns table (number integer, result vector, error jsonb)
language plpython3u stable parallel unsafe security invoker cost 1000000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.each import llm_embed_each
return llm_embed_each(contents, on_error, model)
$python$;
comment on function _mindful.llm_embed_each(text[], text, text) is
'Embeds many texts with an error per row; see llm_embed_many with on_error.';

create function llm_embed_many(
    contents text[],
    on_error error_action,
    model text default null
) returns table (number integer, result vector, error jsonb)
language sql stable parallel unsafe security invoker cost 1000000 rows 100
begin atomic
    select e.number, e.result, e.error from _mindful.llm_embed_each(contents, on_error::text, model) e;
end;
comment on function llm_embed_many(text[], error_action, text) is
'Embeds many texts as llm_embed_many does, one row per text in their order. If on_error is ''null'', a text that fails gives a NULL result and its error; if it is ''raise'', the first failure ends the call. Pass on_error by name.';
