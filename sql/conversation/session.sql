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
'Returns a message of at most 262144 bytes as it is, and a longer one in parts of at most 8192 characters that end at a line or word, so that recall finds each part and a prompt can show it. Errors: 22004 (NULL), 22023 (empty), 54000 (more than 4194304 bytes).';

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

create function session_continue(messages jsonb) returns uuid
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    said jsonb := '[]';
    prompt text;
    found_id uuid;
    started_id uuid;
begin
    perform _mindful.writable();
    perform _mindful.json_argument('messages', messages);
    select string_agg(e.element ->> 'content', E'\n\n' order by e.number) filter (where e.element ->> 'role' in ('system', 'developer')),
        coalesce(jsonb_agg(jsonb_build_object('role', e.element ->> 'role', 'content', btrim(e.element ->> 'content', E' \t\n\r'))
            order by e.number) filter (where e.element ->> 'role' not in ('system', 'developer')), '[]')
    into prompt, said
    from _mindful.array_elements('messages', messages, '{role,content,name,tool_calls,tool_call_id,refusal}') e;
    select c.session_id into found_id
    from (
        -- The newest sessions that hold the last reply.
        select m.session_id, max(m.id) as id
        from mindful.memory m
        join mindful.session s on s.tenant = m.tenant and s.session_id = m.session_id
        where m.tenant = (select _mindful.tenant()) and m.kind = 'message' and m.turn > 0
            and s.system_prompt is not distinct from prompt
            and m.content_hash = md5(said -> -1 ->> 'content') and m.role in ('assistant', 'clarification')
        group by m.session_id
        order by max(m.id) desc
        limit 100
    ) c
    where (
        select jsonb_agg(jsonb_build_object(
            'role', case m.role when 'clarification' then 'assistant' else m.role end, 'content', m.content) order by m.turn)
        from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.session_id = c.session_id and m.turn > 0
            and m.role in ('user', 'assistant', 'clarification')
    ) = said
    order by c.id desc
    limit 1;
    if found_id is not null then
        return found_id;
    end if;
    started_id := mindful.session_start(system_prompt => prompt);
    if said <> '[]' then
        perform mindful.message_insert_many(started_id, said);
    end if;
    return started_id;
end
$$;
comment on function session_continue(jsonb) is
'Returns the newest session that consists of these messages, or starts one with them. For clients that resend the whole conversation: pass all messages but the last, then call llm_chat with the last one. messages is an array of objects with role and content; those of role system are the session''s system prompt. Errors: 22004, 22023 (bad element), 54000 (over 262144 bytes).';

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
