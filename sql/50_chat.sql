create function session_start(title text default null, system_prompt text default null, metadata jsonb default '{}')
returns uuid
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._writable();
    insert into mindful.session (title, system_prompt, metadata)
    values (
        mindful._short_argument('title', title),
        case
            when pg_catalog.octet_length(system_prompt) > 262144 then mindful._text_argument('system_prompt', system_prompt)
            else system_prompt
        end,
        mindful._metadata(metadata)
    )
    returning session_id;
end;
comment on function session_start(text, text, jsonb) is
'Starts a conversation and returns its id. The system prompt, if any, opens every prompt of this conversation. Errors: 22023 (metadata that are no object), 54000 (a title over 1024 bytes, a system prompt or metadata over 262144).';

create function _session_lock(session_id uuid) returns uuid
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform from mindful.session s
    where s.tenant = (select mindful._tenant()) and s.session_id = _session_lock.session_id
    for no key update;
    if not found then
        perform mindful._raise('42704', format('there is no session %s', coalesce(session_id::text, 'null')),
            'Start one with session_start(), or look at your own in mindful.session.');
    end if;
    return session_id;
end
$$;
comment on function _session_lock(uuid) is 'Makes writers of a session take turns; error 42704 if it is not the tenant''s.';

create function message_insert_many(session_id uuid, messages jsonb) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    perform mindful._writable();
    perform mindful._session_lock(message_insert_many.session_id);
    return query
    insert into mindful.memory (kind, session_id, turn, role, content, metadata, created_at)
    select 'message', message_insert_many.session_id,
        (select coalesce(max(m.turn), 0) from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.session_id = message_insert_many.session_id) + e.number,
        mindful._message_role(format('role of element %s', e.number), e.element ->> 'role'),
        mindful._text_argument(format('content of element %s', e.number), e.element ->> 'content'),
        mindful._metadata(e.element -> 'metadata'),
        coalesce(mindful._moment_argument(format('created_at of element %s', e.number), e.element ->> 'created_at'), now())
    from mindful._array_elements('messages', messages, '{role,content,metadata,created_at}') e
    order by e.number
    returning id;
end
$$;
comment on function message_insert_many(uuid, jsonb) is
'Appends messages, an array of objects with role, content and, if wanted, metadata and created_at, to a session in their order, embedded in batches, and returns their ids. All or none: the error names the element. Roles: system, user, assistant, tool, clarification. Errors: 22004, 22023, 42704 (no such session of yours), 54000.';

create function _message_role(name text, role text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when role = any (array['system', 'user', 'assistant', 'tool', 'clarification']) then role
        else mindful._raise('22023',
            pg_catalog.format('%s is %s', name, coalesce(pg_catalog.quote_literal(role), 'null')),
            'Roles are system, user, assistant, tool and clarification.')::text
    end;
end;
comment on function _message_role(text, text) is 'Returns a role that a message can have, or raises 22023.';

create function message_insert(
    session_id uuid,
    role text,
    content text,
    metadata jsonb default '{}',
    created_at timestamptz default now()
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._writable();
    select mindful.message_insert_many(session_id, pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'role', mindful._message_role('role', role), 'content', mindful._text_argument('content', content), 'metadata', mindful._metadata(metadata), 'created_at', created_at)));
end;
comment on function message_insert(uuid, text, text, jsonb, timestamptz) is
'Appends a message to a session and returns its id. Roles and errors as message_insert_many.';

create function _session_turns(session_id uuid, turns integer)
returns table (id bigint, turn integer, role text, content text)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_sort = off
as $$
begin
    return query
    select m.id, m.turn, m.role, m.content
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _session_turns.session_id and m.turn > 0
    order by m.turn desc
    limit turns;
end
$$;
comment on function _session_turns(uuid, integer) is 'The last messages of a session, newest first: without sorting, which a table without statistics made of it, over all of a tenant''s memories.';

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

create function llm_chat(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat
return llm_chat(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat(text, uuid, text, integer, real, integer, integer) is
'Answers a message with the conversation so far and with recalled memories (at most `memories` of them) in view, and stores both turns. Memories and temperature NULL: as the settings chat_memories and chat_temperature say. session_id NULL starts a new conversation, which still remembers all others of the caller. message NULL answers the session''s last message, which a client has inserted and committed before. Errors: 22004 (both NULL), 22023, 42704 (no such session of yours, no such model), 54000 (message longer than the context), 57014 (cancelled).';

create function llm_chat_detail(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns chat_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat_detail
return llm_chat_detail(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat_detail(text, uuid, text, integer, real, integer, integer) is
'As llm_chat, with where the reply is stored (message_id), the memories it was shown, its cost, its confidence as in llm_generate_detail, and what was decided about it: probability is that of being right (see the table decision), the action answer where it reaches the threshold (retrieve, retry or escalate where another attempt does, see the settings of these names), else flag, clarify or abstain; the threshold is NULL until calibrate() has certified one; the reason says why.';

create function llm_chat_stream(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat_stream
return llm_chat_stream(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;
comment on function llm_chat_stream(text, uuid, text, integer, real, integer, integer) is
'As llm_chat, one row per piece of text as it is made (see llm_stream). Both turns are stored when the last row has been read.';

