insert into setting_definition (key, type, scopes, initial, description, choices) values
    ('session_summary', 'text', '{global,user,session}', '"extract"',
        'Way in which turns that leave the window are summarized. extract: their most important sentences, after the reply. model: by the generator, when session_summarize is called. off: no summary.',
        '{extract,model,off}');

create function _mindful.recap_source(session_id uuid) returns text
language sql immutable parallel safe security invoker
begin atomic
    select 'session ' || session_id::text;
end;
comment on function _mindful.recap_source(uuid) is
'Returns the source of a session''s summaries. Their source_key names the turns.';

create function _mindful.recap_turns(session_id uuid, first integer, last integer)
returns table (id bigint, turn integer, role text, content text, content_hash text)
language sql stable parallel safe security invoker
begin atomic
    select m.id, m.turn, m.role, m.content, m.content_hash
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.session_id = recap_turns.session_id
        and m.turn between first and last and m.role <> 'system'
    order by m.turn;
end;
comment on function _mindful.recap_turns(uuid, integer, integer) is
'Returns the messages that a summary covers.';

create function _mindful.recap_missing(session_id uuid, segment integer, most integer)
returns table (first integer, last integer)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    own_tenant text := _mindful.tenant();
    segments integer := (
        select max(m.turn) / segment from mindful.memory m
        where m.tenant = own_tenant and m.session_id = recap_missing.session_id
    );
begin
    -- After most replies each segment has a summary: to count them takes a part of the time of looking for each.
    if segments = (
        select count(*) from mindful.memory m
        where m.tenant = own_tenant and m.source = _mindful.recap_source(recap_missing.session_id)
            and m.source_key is not null
    ) then
        return;
    end if;
    return query
    select s.first, s.first + segment - 1
    from generate_series((segments - 1) * segment + 1, 1, -segment) s (first)
    where format('turns %s to %s', s.first, s.first + segment - 1) not in (
            select m.source_key from mindful.memory m
            where m.tenant = own_tenant and m.source = _mindful.recap_source(recap_missing.session_id)
                and m.source_key is not null
        )
        and exists (select from _mindful.recap_turns(recap_missing.session_id, s.first, s.first + segment - 1))
    order by s.first desc
    limit most;
end
$$;
comment on function _mindful.recap_missing(uuid, integer, integer) is
'Returns the full segments of a session that have no summary, newest first.';

create function _mindful.recap_write(
    session_id uuid,
    first integer,
    last integer,
    content text,
    method text,
    ids bigint[],
    hashes text[],
    quotes text[]
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    summary bigint;
begin
    -- Whoever changes or forgets a turn from here on waits, and then finds the summary and deletes it.
    perform from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.session_id = recap_write.session_id
        and m.turn between first and last
    order by m.turn for share;
    if hashes is distinct from (
        select array_agg(t.content_hash order by t.turn) from _mindful.recap_turns(session_id, first, last) t
    ) then
        return null;
    end if;
    insert into mindful.memory (kind, content, session_id, source, source_key, metadata)
    values ('summary', recap_write.content, recap_write.session_id, _mindful.recap_source(recap_write.session_id),
        format('turns %s to %s', first, last),
        jsonb_build_object('from_turn', first, 'to_turn', last, 'method', method))
    on conflict (tenant, source, source_key) where source is not null do nothing
    returning id into summary;
    insert into mindful.memory_evidence (id, source_id, quote)
    select summary, e.source_id, e.quote
    from rows from (unnest(ids), unnest(quotes)) e (source_id, quote)
    where summary is not null
    on conflict do nothing;
    return summary;
end
$$;
comment on function _mindful.recap_write(uuid, integer, integer, text, text, bigint[], text[], text[]) is
'Stores a summary of turns with a quote of each, and returns its id. NULL: the turns have changed since they were read, or another transaction has stored one.';

create function _mindful.recap_delete(tenant text, session_id uuid, turns integer[]) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    delete from mindful.memory m
    where m.tenant = recap_delete.tenant and m.session_id = recap_delete.session_id
        and m.turn is null and m.kind = 'summary'
        and exists (
            select from pg_catalog.unnest(turns) t (turn)
            where pg_catalog.to_jsonb(t.turn) between m.metadata -> 'from_turn' and m.metadata -> 'to_turn'
        );
end;
comment on function _mindful.recap_delete(text, uuid, integer[]) is
'Deletes the summaries of a session that cover these turns.';

create function _mindful.recap_forget() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
begin
    if tg_op = 'DELETE' then
        perform _mindful.recap_delete(o.tenant, o.session_id, array_agg(o.turn))
        from old_rows o where o.turn > 0 group by o.tenant, o.session_id;
    else
        perform _mindful.recap_delete(o.tenant, o.session_id, array_agg(o.turn))
        from old_rows o, _mindful.memory_changed(o.tenant, o.id, o.content)
        where o.turn > 0 group by o.tenant, o.session_id;
    end if;
    return null;
end
$$;
comment on function _mindful.recap_forget() is
'Deletes summaries of turns that were changed or deleted. The next call or reply makes them again.';
create trigger recap_updated after update on memory referencing old table as old_rows
    for each statement execute function _mindful.recap_forget();
create trigger recap_deleted after delete on memory referencing old table as old_rows
    for each statement execute function _mindful.recap_forget();

create function _mindful.recap_shown(session_id uuid, turn integer)
returns table (id bigint, content text, first text, last text)
language sql stable parallel safe security invoker rows 10
begin atomic
    select m.id, m.content, m.metadata ->> 'from_turn', m.metadata ->> 'to_turn'
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.session_id = recap_shown.session_id
        and m.turn is null and m.kind = 'summary' and m.metadata -> 'from_turn' < pg_catalog.to_jsonb(recap_shown.turn)
    order by m.metadata -> 'from_turn' desc
    limit 10;
end;
comment on function _mindful.recap_shown(uuid, integer) is
'Returns the summaries of a session that cover turns before a turn, newest first.';

create function session_summarize(session_id uuid, method text default null) returns integer
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.recap import session_summarize
return session_summarize(session_id, method)
$python$;
comment on function session_summarize(uuid, text) is
'Summarizes turns of a session that have no summary yet, ten turns each, and returns the number of new summaries. method is extract, model or off; NULL: the setting session_summary.
Errors: 22004, 22023 (unknown method), 42704 (the tenant has no such session), 55000 (no default generator), 57014 (cancelled).';
