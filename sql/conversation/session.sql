create function session_start(title text default null, system_prompt text default null, metadata jsonb default '{}')
returns uuid
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    insert into mindful.session (title, system_prompt, metadata)
    values (
        _mindful.short_argument('title', title),
        case
            when pg_catalog.octet_length(system_prompt) > 262144 then _mindful.text_argument('system_prompt', system_prompt)
            else system_prompt
        end,
        _mindful.metadata(metadata)
    )
    returning session_id;
end;
comment on function session_start(text, text, jsonb) is
'Starts a session and returns its id.
system_prompt begins every prompt of this session. Errors: 22023 (metadata is not an object), 54000 (title over 1024 bytes, system_prompt or metadata over 262144).';

create function _mindful.session_lock(session_id uuid) returns uuid
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform from mindful.session s
    where s.tenant = (select _mindful.tenant()) and s.session_id = session_lock.session_id
    for no key update;
    if not found then
        perform _mindful.raise('42704', format('there is no session %s', coalesce(session_id::text, 'null')),
            'Use session_start() to start one, or session_list() to see those of your tenant.');
    end if;
    return session_id;
end
$$;
comment on function _mindful.session_lock(uuid) is
'Locks a session against other writers, or raises 42704 if the tenant has no such session.';

create function _mindful.message_parts(name text, content text) returns table (part integer, parts integer, passage text)
language plpgsql stable parallel safe security invoker rows 1
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    size constant integer := 8192;
    -- A character may have four bytes, and a position in a text of such characters is found by counting from its beginning.
    chunk text;
    found_parts text[] := '{}';
    cut integer;
    at integer := 1;
    total integer;
begin
    if coalesce(octet_length(message_parts.content), 0) <= 262144 then
        return query select 1, 1, _mindful.text_argument(name, message_parts.content);
        return;
    elsif octet_length(message_parts.content) > 4194304 then
        perform _mindful.raise('54000', format('%s has %s bytes, more than 4194304', name, octet_length(message_parts.content)),
            'Split it into several messages, or insert it as a document.');
    end if;
    total := length(message_parts.content);
    while at <= total loop
        chunk := substr(message_parts.content, at, size);
        if at + size <= total then
            cut := size + 1 - coalesce(nullif(strpos(reverse(chunk), E'\n'), 0), nullif(strpos(reverse(chunk), ' '), 0), 1);
            chunk := left(chunk, greatest(cut, size / 2));
        end if;
        if btrim(chunk, E' \t\n\r') <> '' then
            found_parts := found_parts || chunk;
        end if;
        at := at + length(chunk);
    end loop;
    if found_parts = '{}' then
        perform _mindful.raise('22023', name || ' is empty', 'Pass a text with at least one visible character.');
    end if;
    return query
    select p.number::integer, cardinality(found_parts), p.part from unnest(found_parts) with ordinality p (part, number);
end
$$;
comment on function _mindful.message_parts(text, text) is
'Returns a message in parts: one if it has at most 262144 bytes, else parts of at most 8192 characters. Parts end at a line or word. Recall finds each part, and a prompt can show it. Errors: 22004 (NULL), 22023 (empty), 54000 (more than 4194304 bytes).';

create function message_insert_many(session_id uuid, messages jsonb) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    perform _mindful.writable();
    perform _mindful.session_lock(message_insert_many.session_id);
    return query
    with given as (
        select e.number, p.part, p.parts, p.passage, row_number() over (order by e.number, p.part) as place,
            _mindful.message_role(format('role of element %s', e.number), e.element ->> 'role') as role,
            _mindful.metadata(e.element -> 'metadata') as metadata,
            coalesce(_mindful.moment_argument(format('created_at of element %s', e.number), e.element ->> 'created_at'), now()) as created_at
        from _mindful.array_elements('messages', messages, '{role,content,metadata,created_at}') e
        cross join lateral _mindful.message_parts(format('content of element %s', e.number), e.element ->> 'content') p
    ),
    inserted as (
        insert into mindful.memory (kind, session_id, turn, role, content, metadata, created_at)
        select 'message', message_insert_many.session_id,
            (select coalesce(max(m.turn), 0) from mindful.memory m
                where m.tenant = (select _mindful.tenant()) and m.session_id = message_insert_many.session_id) + g.place,
            g.role, g.passage,
            case when g.parts > 1 then g.metadata || jsonb_build_object('part', g.part, 'parts', g.parts) else g.metadata end,
            g.created_at
        from given g
        order by g.place
        returning id, turn
    )
    select i.id
    from (select id, row_number() over (order by turn) as place from inserted) i
    join given g using (place)
    where g.part = 1
    order by place;
end
$$;
comment on function message_insert_many(uuid, jsonb) is
'Appends messages to a session in order, and returns their ids. messages is an array of objects with role and content, optionally metadata and created_at. All are stored or none: an error names the element.
Example: SELECT message_insert_many(session_start(), ''[{"role": "user", "content": "Hello"}]'');
Errors: 22004, 22023, 42704 (the tenant has no such session), 54000 (more than 4194304 bytes).';

create function _mindful.message_role(name text, role text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when role = any (array['system', 'user', 'assistant', 'tool', 'clarification']) then role
        else _mindful.raise('22023',
            pg_catalog.format('%s is %s', name, coalesce(pg_catalog.quote_literal(role), 'null')),
            'Pass system, user, assistant, tool or clarification.')::text
    end;
end;
comment on function _mindful.message_role(text, text) is
'Returns a role of a message, or raises 22023.';

create function message_insert(
    session_id uuid,
    role text,
    content text,
    metadata jsonb default '{}',
    created_at timestamptz default now()
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    select mindful.message_insert_many(session_id, pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'role', _mindful.message_role('role', role), 'content', case when pg_catalog.octet_length(content) > 262144 then content else _mindful.text_argument('content', content) end,
        'metadata', _mindful.metadata(metadata), 'created_at', created_at)));
end;
comment on function message_insert(uuid, text, text, jsonb, timestamptz) is
'Appends a message to a session and returns its id. Roles and errors are those of message_insert_many.
Example: SELECT message_insert(session_start(), ''user'', ''Where is the key?'');';

create index memory_reply on memory (tenant, content_hash) where role in ('assistant', 'clarification');

-- The sentences are those of `_NOTICES` and `_UNTOLD` in plpy/src/mindful/confidence/action.py; a test compares them.
create function _mindful.notice_removed(content text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.left(content, pg_catalog.length(content) - coalesce(pg_catalog.length(pg_catalog.substring(
        pg_catalog.right(content, 100),
        E'\n\n\\[(?:I am probably wrong here|I am not sure about this|I am fairly, but not quite, sure of this|I am quite sure of this|I cannot tell how sure I am of this)(?: \\(about [0-9]{1,3}%\\))?\\.\\]$'
    )), 0));
end;
comment on function _mindful.notice_removed(text) is
'Returns a reply without the sentence that the setting chat_flag_notice adds at its end. The stored message does not have it, and clients send it back.';

create function _mindful.session_find(prompt text, roles text[], hashes text[]) returns uuid
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_sort = off
set jit = off
as $$
declare
    candidate uuid;
    found_turn record;
    place integer;
begin
    <<candidates>>
    for candidate in
        select m.session_id
        from unnest(string_to_array(hashes[cardinality(hashes)], ' ')) h (hash)
        -- Neither a join with hashes nor one with sessions: without statistics, it would read all replies of the tenant.
        cross join lateral (
            select r.tenant, r.session_id, r.id
            from mindful.memory r
            where r.tenant = (select _mindful.tenant()) and r.content_hash = h.hash and r.kind = 'message' and r.turn > 0
                and r.role in ('assistant', 'clarification')
            offset 0
        ) m
        where (
            select s.system_prompt is not distinct from prompt from mindful.session s
            where s.tenant = m.tenant and s.session_id = m.session_id
        )
        group by m.session_id
        order by max(m.id) desc
        limit 100
    loop
        place := cardinality(roles);
        for found_turn in
            select case m.role when 'clarification' then 'assistant' else m.role end as role, m.content_hash
            from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.session_id = candidate and m.turn > 0
                and m.role in ('user', 'assistant', 'clarification')
            order by m.turn desc
        loop
            continue candidates
                when (place > 0 and roles[place] = found_turn.role and strpos(hashes[place], found_turn.content_hash) > 0) is not true;
            place := place - 1;
        end loop;
        if place = 0 then
            return candidate;
        end if;
    end loop;
    return null;
end
$$;
comment on function _mindful.session_find(text, text[], text[]) is
'Returns the newest session with this system prompt whose turns have these roles and hashes, NULL if there is none. Each element of hashes has one or more hashes with blanks between. Turns are compared from the last, as other sessions differ there. Sorting is off as in session_turns.';

create function session_continue(messages jsonb) returns uuid
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    said jsonb;
    prompt text;
    roles text[];
    hashes text[];
    found_id uuid;
    hint constant text := 'Leave out the oldest messages, or begin a new conversation.';
begin
    perform _mindful.writable();
    if octet_length(messages::text) > 1048576 then
        perform _mindful.raise('54000', format('messages has %s bytes, more than 1048576', octet_length(messages::text)), hint);
    elsif jsonb_typeof(messages) = 'array' and jsonb_array_length(messages) > 10000 then
        perform _mindful.raise('54000', format('messages has %s elements, more than 10000', jsonb_array_length(messages)), hint);
    end if;
    select string_agg(e.element ->> 'content', E'\n\n' order by e.number) filter (where e.element ->> 'role' in ('system', 'developer')),
        coalesce(jsonb_agg(jsonb_build_object('role', e.element ->> 'role', 'content', case
                when e.element ->> 'role' = 'assistant' then _mindful.notice_removed(btrim(e.element ->> 'content', E' \t\n\r'))
                else e.element ->> 'content' end)
            order by e.number) filter (where e.element ->> 'role' not in ('system', 'developer')), '[]')
    into prompt, said
    from _mindful.array_elements('messages', messages, '{role,content,name,tool_calls,tool_call_id,refusal}') e;
    with given as (
        select e.number, e.element ->> 'role' as role, e.element ->> 'content' as content
        from jsonb_array_elements(messages) with ordinality e (element, number)
        where e.element ->> 'role' not in ('system', 'developer')
    )
    -- A reply is stored without spaces around it and without its notice, a message of the user as it was sent.
    select array_agg(g.role order by g.number, p.part),
        array_agg(concat_ws(' ', md5(p.passage), md5(btrim(p.passage, E' \t\n\r')),
            case g.role when 'assistant' then md5(_mindful.notice_removed(btrim(p.passage, E' \t\n\r'))) end) order by g.number, p.part)
    into roles, hashes
    from given g
    cross join lateral (
        select 1 as part, g.content as passage where (octet_length(g.content) > 262144) is not true
        union all
        select p.part, p.passage from _mindful.message_parts('content', g.content) p where octet_length(g.content) > 262144
    ) p;
    found_id := _mindful.session_find(prompt, roles, hashes);
    if found_id is null then
        found_id := mindful.session_start(system_prompt => prompt);
        if said <> '[]' then
            perform mindful.message_insert_many(found_id, said);
        end if;
    end if;
    return found_id;
end
$$;
comment on function session_continue(jsonb) is
'Returns the newest session that consists of these messages, or starts one with them. For clients that resend the whole conversation: pass all messages but the last, then call llm_chat with the last one. Elements have role and content; role system is the session''s prompt. Errors: 22004, 22023 (bad element), 54000 (over 1048576 bytes or 10000 elements).';

create function _mindful.session_turns(session_id uuid, turns integer)
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
    where m.tenant = (select _mindful.tenant()) and m.session_id = session_turns.session_id and m.turn > 0
    order by m.turn desc
    limit turns;
end
$$;
comment on function _mindful.session_turns(uuid, integer) is
'Returns the last messages of a session, newest first. Sorting is off: without statistics, the planner would sort all memories of the tenant.';

create type session_detail as (
    session_id uuid,
    title text,
    system_prompt text,
    metadata jsonb,
    created_at timestamptz,
    messages bigint,
    last_message_at timestamptz
);
comment on type session_detail is 'A session as session_get and session_list return it.';

create function _mindful.session_details(sessions session[]) returns setof session_detail
language sql stable parallel safe security invoker
begin atomic
    select s.session_id, s.title, s.system_prompt, s.metadata, s.created_at, t.messages, t.last_message_at
    from pg_catalog.unnest(sessions) with ordinality s (tenant, session_id, title, system_prompt, metadata, created_at, place)
    cross join lateral (
        select pg_catalog.count(*) as messages, pg_catalog.max(m.created_at) as last_message_at
        from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.session_id = s.session_id and m.turn > 0
    ) t
    order by s.place;
end;
comment on function _mindful.session_details(session[]) is 'Returns sessions with the number and the last time of their messages.';

create function session_get(session_id uuid) returns session_detail
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    sessions mindful.session[] := array(
        select s from mindful.session s
        where s.tenant = (select _mindful.tenant()) and s.session_id = session_get.session_id
    );
    detail mindful.session_detail;
begin
    if sessions = '{}' then
        perform _mindful.raise('42704', format('there is no session %s', coalesce(session_id::text, 'null')),
            'Use session_list() to see your sessions.');
    end if;
    select d.* into detail from _mindful.session_details(sessions) d;
    return detail;
end
$$;
comment on function session_get(uuid) is
'Returns a session: title, system prompt, metadata, the number of its messages and the time of the last one.
Error 42704: the tenant has no such session.';

create function session_list(before_session_id uuid default null, max_count integer default 100) returns setof session_detail
language plpgsql stable parallel safe security invoker rows 100
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    last_of_page mindful.session_detail;
begin
    perform _mindful.integer_argument('max_count', max_count, 1, 1000);
    if before_session_id is not null then
        last_of_page := mindful.session_get(before_session_id);
    end if;
    return query
    select d.* from _mindful.session_details(array(
        select s from mindful.session s
        where s.tenant = (select _mindful.tenant())
            and (before_session_id is null
                or (s.created_at, s.session_id) < (last_of_page.created_at, last_of_page.session_id))
        order by s.created_at desc, s.session_id desc
        limit max_count
    )) d;
end
$$;
comment on function session_list(uuid, integer) is
'Returns sessions, newest first by the time they were started, at most max_count (1 to 1000).
before_session_id: only sessions older than this one. Pass the last session_id of a page to get the next page.
Example: SELECT session_id, title, messages FROM session_list(max_count => 20);
Errors: 22004, 22023, 42704 (the tenant has no session before_session_id).';

create function session_delete(session_id uuid, dry_run boolean default false) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if session_id is null then
        perform _mindful.raise('22004', 'session_id is null', 'Pass the id of a session; session_list() returns them.');
    end if;
    return query select * from mindful.memory_forget(session_id => session_delete.session_id, dry_run => session_delete.dry_run);
end
$$;
comment on function session_delete(uuid, boolean) is
'Deletes a session with its messages and all that was drawn from them alone, and returns the counts of memory_forget.
It is memory_forget(session_id => ...). With dry_run true, it only counts. Memories that other sessions or calls support stay.
Errors: 22004, 42704 (the tenant has no such session).';

create view conversation with (security_invoker = true) as
select m.tenant, m.session_id, s.title, m.turn, m.role, m.content, m.id as message_id, m.created_at,
    case when jsonb_typeof(m.metadata -> 'confidence') = 'number' and (m.metadata -> 'confidence')::numeric between 0 and 1
        then _mindful.real((m.metadata -> 'confidence')::numeric(40, 39)) end as confidence,
    m.metadata ->> 'model' as model
from mindful.memory m
join mindful.session s on s.tenant = m.tenant and s.session_id = m.session_id
where m.kind = 'message';
comment on view conversation is 'The caller''s conversations, message by message; order by session_id, turn.';
