create function _mindful.said_next(session_id uuid, turn integer) returns table (said_next text[])
language sql stable parallel safe security invoker rows 1
begin atomic
    -- LIMIT ends the scan of the session's index, whose order the array keeps.
    select pg_catalog.array_agg(case when t.role = 'user' then pg_catalog."left"(t.content, 301) else '?' end)
        filter (where t.role = 'user' or _mindful.ends_asking(t.content))
    from (
        select m.content, m.role, m.turn from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.session_id = said_next.session_id and m.turn > said_next.turn
        order by m.turn
        limit 8
    ) t;
end;
comment on function _mindful.said_next(uuid, integer) is
'Returns the user''s messages among the eight turns after a turn, in order. "?" stands for a turn of another role that ends with a question. NULL if there are none.';

create function _mindful.said_before(session_id uuid, turn integer) returns table (id bigint, turn integer, role text, content text)
language sql stable parallel safe security invoker rows 8
begin atomic
    select m.id, m.turn, m.role,
        case when m.role = 'user' then pg_catalog."left"(m.content, 301) when _mindful.ends_asking(m.content) then '?' else '' end
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.session_id = said_before.session_id
        and m.turn < said_before.turn and m.turn > 0
    order by m.turn desc
    limit 8;
end;
comment on function _mindful.said_before(uuid, integer) is
'Returns the eight turns before a turn, newest first: the user''s with the beginning of their text, others with "?" if they end with a question, else with an empty text.';
