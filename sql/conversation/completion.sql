create type completion as (
    choice integer,
    text text,
    tool_calls jsonb,
    finish_reason text,
    logprobs jsonb,
    model text,
    prompt_tokens integer,
    cached_tokens integer,
    completion_tokens integer,
    confidence real,
    signals jsonb,
    first_token_ms real,
    total_ms real
);
comment on type completion is 'One answer to a list of messages, what it cost, and how sure the model was.';

create type completion_piece as (
    choice integer,
    text text,
    token text,
    bytes bytea,
    logprob real,
    alternatives jsonb,
    tool_call jsonb,
    finish_reason text,
    usage jsonb
);
comment on type completion_piece is 'A part of an answer to a list of messages; the last row of a choice has finish_reason and usage.';

create function llm_complete(
    messages jsonb,
    model text default null,
    max_tokens integer default 256,
    temperature double precision default 0,
    top_p double precision default 0.95,
    top_k integer default 40,
    min_p double precision default 0.05,
    presence_penalty double precision default 0,
    frequency_penalty double precision default 0,
    repeat_penalty double precision default 1,
    logit_bias jsonb default null,
    stop text[] default '{}',
    seed integer default null,
    n integer default 1,
    json_schema jsonb default null,
    grammar text default null,
    tools jsonb default null,
    tool_choice text default 'auto',
    top_logprobs integer default null
) returns setof completion
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 1
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.completion import llm_complete
return llm_complete(messages, model, max_tokens, temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty, logit_bias, stop, seed, n, json_schema, grammar, tools, tool_choice, top_logprobs)
$python$;
comment on function llm_complete(jsonb, text, integer, double precision, double precision, integer, double precision, double precision, double precision, double precision, jsonb, text[], integer, integer, jsonb, text, jsonb, text, integer) is
'Answers a list of messages, one row per choice (n, 1 to 32); it reads and writes no memory. messages is an array of objects with role and content, or a JSON string, which is continued without the chat template. NULL gives no rows. Errors: 22004, 22023, 42704, 54000 (too long), 57014 (cancelled). Example: select text from llm_complete(''[{"role": "user", "content": "Name a color."}]'');';

create function llm_complete_stream(
    messages jsonb,
    model text default null,
    max_tokens integer default 256,
    temperature double precision default 0,
    top_p double precision default 0.95,
    top_k integer default 40,
    min_p double precision default 0.05,
    presence_penalty double precision default 0,
    frequency_penalty double precision default 0,
    repeat_penalty double precision default 1,
    logit_bias jsonb default null,
    stop text[] default '{}',
    seed integer default null,
    n integer default 1,
    json_schema jsonb default null,
    grammar text default null,
    tools jsonb default null,
    tool_choice text default 'auto',
    top_logprobs integer default null
) returns setof completion_piece
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.completion import llm_complete_stream
return llm_complete_stream(messages, model, max_tokens, temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty, logit_bias, stop, seed, n, json_schema, grammar, tools, tool_choice, top_logprobs)
$python$;
comment on function llm_complete_stream(jsonb, text, integer, double precision, double precision, integer, double precision, double precision, double precision, double precision, jsonb, text[], integer, integer, jsonb, text, jsonb, text, integer) is
'Answers as llm_complete does, one row per piece of text as it is made, choice after choice. The last row of a choice has finish_reason and usage. Call it in the select list and read it through a cursor. Errors as llm_complete. Example: select llm_complete_stream(''[{"role": "user", "content": "Name a color."}]'');';
