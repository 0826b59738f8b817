create function _mindful.forget_counts(ids bigint[], sessions uuid[], wished boolean) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    reached record;
    counted bigint;
begin
    for reached in
        with path as (
            select p.relation, p.action, string_agg(p.condition, ' or ') as condition
            from _mindful.forget_paths() p
            where (cardinality(sessions) > 0 or p.condition not like '%$3%')
                and (p.relation, p.action) <> ('memory', 'changed')  -- _forget_delete counts these.
            group by p.relation, p.action
        )
        select c.relation, c.action, c.condition, coalesce(d.condition, 'false') as deleted,
            c.relation in ('memory', 'session') as is_root
        from path c
        left join path d on c.action = 'changed' and d.relation = c.relation and d.action = 'deleted'
    loop
        execute format('select count(*) from mindful.%I t where t.tenant = $1 and (%s) and (%s) is not true',
            reached.relation, reached.condition, reached.deleted)
        into counted using _mindful.tenant(), ids, sessions, wished;
        if counted > 0 or reached.is_root then
            return query select null::bigint, reached.relation, reached.action, counted;
        end if;
    end loop;
    return query
    select null::bigint, 'memory_term', 'deleted', count(*)
    from mindful.memory m, _mindful.terms(m.content, m.language)
    where m.tenant = (select _mindful.tenant()) and m.id = any (ids)
    union all
    select null::bigint, m.source, 'kept', count(*)
    from mindful.memory m
    join mindful.attachment a on a.tenant = m.tenant and a.source = m.source
    where m.tenant = (select _mindful.tenant()) and m.id = any (ids)
    group by m.source;
end
$$;
comment on function _mindful.forget_counts(bigint[], uuid[], boolean) is
'Returns the rows by table that deleting these memories and sessions deletes or changes, and the attached tables that still have their rows.';

create function _mindful.forget_recaps(ids bigint[]) returns setof bigint
language sql stable parallel safe security invoker
begin atomic
    with said as materialized (
        select m.session_id, pg_catalog.to_jsonb(m.turn) as turn
        from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = any (ids) and m.turn > 0
    )
    select s.id
    from (select distinct session_id from said) t
    cross join lateral (
        select s.id, s.metadata from mindful.memory s
        where s.tenant = (select _mindful.tenant()) and s.session_id = t.session_id and s.turn is null
            and s.kind = 'summary'
        offset 0
    ) s
    where exists (
        select from said
        where said.session_id = t.session_id
            and said.turn between s.metadata -> 'from_turn' and s.metadata -> 'to_turn'
    );
end;
comment on function _mindful.forget_recaps(bigint[]) is
'Returns the summaries of sessions that cover one of these messages.';

create function _mindful.forget_reach(ids bigint[], versions boolean default false, copies boolean default false) returns bigint[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    frontier bigint[] := ids;
begin
    while cardinality(frontier) > 0 loop
        -- The lock keeps others from adding evidence from them.
        perform from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = any (frontier)
        order by m.id for update;
        frontier := array(
            select n.id
            from (
                select v.id
                from (
                    select m.superseded_by as id from mindful.memory m
                    where m.tenant = (select _mindful.tenant()) and m.id = any (frontier) and m.superseded_by is not null
                    union
                    select m.id from mindful.memory m
                    where m.tenant = (select _mindful.tenant()) and m.superseded_by = any (frontier)
                ) v
                where versions and not exists (
                    select from mindful.memory_evidence e where e.tenant = (select _mindful.tenant()) and e.id = v.id
                )
                union
                select d.id
                from mindful.memory m
                join mindful.memory d on d.tenant = (select _mindful.tenant()) and d.content_hash = m.content_hash
                    and d.kind <> 'message'
                where copies and m.tenant = (select _mindful.tenant()) and m.id = any (frontier)
                union
                select _mindful.forget_recaps(frontier)
                union
                select o.id
                from (
                    select distinct e.id from mindful.memory_evidence e
                    where e.tenant = (select _mindful.tenant()) and e.source_id = any (frontier)
                ) e
                join mindful.memory d on d.tenant = (select _mindful.tenant()) and d.id = e.id and _mindful.memory_is_drawn(d)
                join mindful.memory_evidence o on o.tenant = (select _mindful.tenant()) and o.id = e.id
                left join unnest(ids) g (id) on g.id = o.source_id
                group by o.id
                having bool_and(g.id is not null and not d.stated) or bool_or(d.kind = 'summary')
            ) n
            where not exists (select from unnest(ids) g (id) where g.id = n.id)
        );
        ids := ids || frontier;
    end loop;
    return ids;
end
$$;
comment on function _mindful.forget_reach(bigint[], boolean, boolean) is
'Memories, and those that go with them: the summaries that cover them, and what was drawn from nothing else; with versions, their other versions that have no evidence of their own; with copies, their exact duplicates (messages excepted). All of them are locked.';

create function _mindful.memory_is_drawn(m memory) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select m.kind <> 'message' and not (m.kind = 'document' and m.metadata ? 'chunk') and not exists (
        select from mindful.attachment a where a.tenant = (select _mindful.tenant()) and a.source = m.source
    );
end;
comment on function _mindful.memory_is_drawn(memory) is
'Returns whether a memory depends on its evidence: it is not a message, a part of a document or a row of an attached table.';

create function _mindful.forget_heirs(ids bigint[], wished boolean) returns setof bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with recursive gone as materialized (
        select i as id from pg_catalog.unnest(ids) i
    ),
    heir as (
        select m.id, m.superseded_by as heir from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.superseded_by = any (ids)
            and not exists (select from gone g where g.id = m.id)
        union
        select h.id, m.superseded_by
        from heir h
        join gone g on g.id = h.heir
        join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = h.heir
    )
    update mindful.memory m
    set superseded_by = h.heir,
        valid_to = case when h.heir is null and wished then m.valid_to_given else m.valid_to end,
        valid_to_given = case when h.heir is not null then m.valid_to_given end
    from heir h
    where m.tenant = (select _mindful.tenant()) and m.id = h.id and not exists (select from gone g where g.id = h.heir)
    returning m.id;
end;
comment on function _mindful.forget_heirs(bigint[], boolean) is
'Corrects memories that deleted memories had superseded: they point at the next later version that stays. If none stays and wished is true, they are valid again as before. Returns their ids.';

create function _mindful.forget_replies(ids bigint[]) returns table (id bigint, session_id uuid)
language sql volatile parallel unsafe security invoker
begin atomic
    with gone as materialized (
        select i::text as id from pg_catalog.unnest(ids) i
    ),
    reply as materialized (
        select m.id, m.metadata from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.role = any (array['assistant', 'clarification'])
    ),
    showed as (
        select r.id, coalesce(pg_catalog.jsonb_agg(s.value order by s.number) filter (where g.id is null), '[]') as memory_ids
        from reply r
        cross join _mindful.memory_ids(r.metadata) s
        left join gone g on g.id = s.id
        group by r.id
        having pg_catalog.count(g.id) > 0
    ),
    answered as (
        select r.id from reply r join gone g on g.id = r.metadata ->> 'reply_to'
    ),
    told as (
        select id, pg_catalog.jsonb_build_object('memory_ids', w.memory_ids) as memory_ids, a.id is not null as is_answer
        from showed w full join answered a using (id)
    )
    update mindful.memory m
    set metadata = (case when t.is_answer then m.metadata - 'reply_to' else m.metadata end)
        || case when t.memory_ids -> 'memory_ids' = 'null' then '{}' else t.memory_ids end
    from told t
    where m.tenant = (select _mindful.tenant()) and m.id = t.id
    returning m.id, m.session_id;
end;
comment on function _mindful.forget_replies(bigint[]) is
'Removes deleted memories from the metadata of replies, where memory_ids and reply_to name them, and returns those replies.';
