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
'Answers a list of messages, one row per choice (n, 1 to 32); it reads and writes no memory. messages is an array of objects with role (system, developer, user, assistant, tool) and content, a text or an array of parts of type text, and for calls tool_calls and tool_call_id; or a JSON string, which is continued without the chat template. If the last message is the assistant''s, the answer continues it. NULL gives no rows. max_tokens -1 is as many as fit. top_k 0, top_p 1 and min_p 0 keep all tokens; penalties concern the tokens of the answer. logit_bias maps token ids to numbers from -100 to 100. A seed makes a call repeatable on the same machine; choice i uses seed + i. json_schema and grammar as llm_generate, but an answer cut by max_tokens is returned with finish_reason length. tools is an array of {"type": "function", "function": {name, description, parameters}}; tool_choice is none, auto, required or a function''s name; the arguments of a call fit the parameters. The caller runs the function. With top_logprobs (0 to 20) logprobs holds each token with its log-probability (nats, temperature 1) and the likeliest in its place. finish_reason is stop, length or tool_calls. The state of a conversation is kept (state_tenant_mb), so messages that are sent again cost no evaluation. Errors: 22004, 22023 (bad argument), 42704 (no such model), 54000 (longer than the context), 57014 (cancelled).';

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
'As llm_complete, one row per piece of text as it is made, choice after choice. With top_logprobs there is one row per token; bytes are the token''s own, as a token may be part of a character. A call''s first row has its id and name, the following ones more of its arguments. The last row of a choice has finish_reason, and in usage the other columns of completion. Read it through a cursor, in the select list: select llm_complete_stream(...).';
