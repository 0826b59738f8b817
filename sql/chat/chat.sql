create type chat_detail as (
    reply text,
    session_id uuid,
    message_id bigint,
    action text,
    confidence real,
    threshold real,
    memory_ids bigint[],
    model text,
    prompt_tokens integer,
    cached_tokens integer,
    completion_tokens integer,
    finish_reason text,
    signals jsonb,
    first_token_ms real,
    total_ms real,
    probability real,
    reason text,
    decision_id bigint
);
comment on type chat_detail is 'A reply, where it is stored, what it rests on, what it cost, and how sure the model was.';

create function _mindful.turn_insert(session_id uuid, title text, messages jsonb, memory_ids bigint[]) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if title is not null then
        insert into mindful.session (session_id, title) values (turn_insert.session_id, turn_insert.title);
    end if;
    return query select mindful.message_insert_many(session_id, messages);
    perform _mindful.memory_shown(memory_ids);
end
$$;
comment on function _mindful.turn_insert(uuid, text, jsonb, bigint[]) is
'Stores the messages of a chat turn and returns their ids in order, starts the session if a title is given, and counts the memories that were shown.';

create function llm_chat(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null,
    top_p double precision default null,
    top_k integer default null,
    min_p double precision default null,
    presence_penalty double precision default null,
    frequency_penalty double precision default null,
    repeat_penalty double precision default null
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat.chat import llm_chat
return llm_chat(message, session_id, model, max_tokens, temperature, seed, memories, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty)
$python$;
comment on function llm_chat(text, uuid, text, integer, real, integer, integer, double precision, integer, double precision, double precision, double precision, double precision) is
'Answers a message with the conversation so far and recalled memories, and stores both turns. session_id NULL starts a new conversation. message NULL answers the session''s last message. Errors: 22004 (both NULL), 22023, 42704 (no such session or model), 54000 (message longer than the context), 57014 (cancelled). Example: select llm_chat(''What did I say about tea?'');';

create function llm_chat_detail(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null,
    top_p double precision default null,
    top_k integer default null,
    min_p double precision default null,
    presence_penalty double precision default null,
    frequency_penalty double precision default null,
    repeat_penalty double precision default null
) returns chat_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat.chat import llm_chat_detail
return llm_chat_detail(message, session_id, model, max_tokens, temperature, seed, memories, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty)
$python$;
comment on function llm_chat_detail(text, uuid, text, integer, real, integer, integer, double precision, integer, double precision, double precision, double precision, double precision) is
'Answers as llm_chat does, and returns the reply with the id of its message, the memories that the model read, its cost, its confidence, and the decision about it: action, probability, threshold and reason. Errors as llm_chat. Example: select reply, action, reason from llm_chat_detail(''What did I say about tea?'');';

create function llm_chat_stream(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null,
    top_p double precision default null,
    top_k integer default null,
    min_p double precision default null,
    presence_penalty double precision default null,
    frequency_penalty double precision default null,
    repeat_penalty double precision default null
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat.chat import llm_chat_stream
return llm_chat_stream(message, session_id, model, max_tokens, temperature, seed, memories, top_p, top_k, min_p, presence_penalty, frequency_penalty, repeat_penalty)
$python$;
comment on function llm_chat_stream(text, uuid, text, integer, real, integer, integer, double precision, integer, double precision, double precision, double precision, double precision) is
'As llm_chat, one row per piece of text as it is made (see llm_generate_stream). Both turns are stored when the last row has been read.';
