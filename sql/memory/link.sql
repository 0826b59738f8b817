create table memory_link (
    tenant text not null default _mindful.tenant(),
    source_id bigint not null,
    target_id bigint not null,
    relation text not null check (relation ~ '^[a-z][a-z0-9_]{0,62}$'),
    weight real not null default 1 check (weight between 0 and 1),
    created_at timestamptz not null default now(),
    weight_first real,
    primary key (tenant, source_id, target_id, relation),
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, target_id) references memory (tenant, id) on delete cascade,
    check (source_id <> target_id)
);
-- The strongest links first, as memory_neighbors follows them.
create index on memory_link (tenant, source_id, weight desc) where source_id is not null;
create index on memory_link (tenant, target_id, weight desc) where target_id is not null;
comment on table memory_link is
'Directed links between memories, with a relation and a weight.';
comment on column memory_link.weight_first is 'Weight of the link when it was made; NULL: its weight has not changed.';

alter table memory_link enable row level security, force row level security;
create policy own on memory_link using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_link', '');

create function _mindful.link_weighed() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    new.weight_first := coalesce(old.weight_first, old.weight);
    return new;
end
$$;
comment on function _mindful.link_weighed() is 'Keeps the first weight of a link whose weight changes.';
create trigger weighed before update of weight on memory_link
    for each row when (old.weight is distinct from new.weight) execute function _mindful.link_weighed();

create function memory_link_insert(source_id bigint, target_id bigint, relation text, weight real default 1) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    is_new boolean;
begin
    perform _mindful.writable();
    if memory_link_insert.source_id = memory_link_insert.target_id then
        perform _mindful.raise('22023', format('memory %s is linked to itself', memory_link_insert.source_id),
            'Pass two different ids.');
    elsif memory_link_insert.relation is null or memory_link_insert.relation !~ '^[a-z][a-z0-9_]{0,62}$' then
        perform _mindful.raise('22023', format('relation is %s', coalesce(quote_literal(memory_link_insert.relation), 'null')),
            'Pass 1 to 63 characters a-z, 0-9 and _, such as works_for.');
    end if;
    perform _mindful.memory_keep(array[memory_link_insert.source_id, memory_link_insert.target_id]);
    insert into mindful.memory_link as l (source_id, target_id, relation, weight)
    values (
        _mindful.memory_argument('source_id', memory_link_insert.source_id),
        _mindful.memory_argument('target_id', memory_link_insert.target_id),
        memory_link_insert.relation,
        coalesce(_mindful.share_argument('weight', to_jsonb(memory_link_insert.weight)), 1)
    )
    on conflict (tenant, source_id, target_id, relation) do update set weight = excluded.weight
    returning l.xmax = 0 into is_new;
    return is_new;
end
$$;
comment on function memory_link_insert(bigint, bigint, text, real) is
'Links a source memory to a target memory by a relation. Returns true if the link is new, false if only its weight was set.
weight: 0 to 1 (NULL: 1).
Example: SELECT memory_link_insert(3, 8, ''works_for'', 0.9);
Errors: 22004, 22023 (relation, weight, or a link to itself), 42704 (the tenant has no such memory).';

create function memory_link_delete(source_id bigint, target_id bigint, relation text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    source_id := _mindful.memory_argument('source_id', source_id);
    target_id := _mindful.memory_argument('target_id', target_id);
    return (
        select _mindful.delete('memory_link', jsonb_agg(to_jsonb(l)))
        from (
            select l.source_id, l.target_id, l.relation
            from mindful.memory_link l
            where l.tenant = (select _mindful.tenant())
                and l.source_id = memory_link_delete.source_id and l.target_id = memory_link_delete.target_id
                and (memory_link_delete.relation is null or l.relation = memory_link_delete.relation)
            for update
        ) l
    );
end
$$;
comment on function memory_link_delete(bigint, bigint, text) is
'Deletes the link with a relation (NULL: all links) from one memory to another, and returns their number.
Errors: 22004, 42704 (the tenant has no such memory).';

create type memory_neighbor as (
    id bigint,
    content text,
    kind text,
    relation text,
    weight real,
    depth integer,
    path bigint[]
);
comment on type memory_neighbor is
'A memory and the path of links to it.';

create function _mindful.direction_argument(direction text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when direction = any (array['both', 'out', 'in']) then direction
        else _mindful.raise('22023', pg_catalog.format('direction is %s', coalesce(pg_catalog.quote_literal(direction), 'null')),
            'Pass out (from source to target), in or both.')::text
    end;
end;
comment on function _mindful.direction_argument(text) is 'Returns a direction, or raises 22023.';

create function _mindful.memory_is_true(id bigint, as_of timestamptz) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select exists (
        select from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = memory_is_true.id
            and (as_of is null
                or (m.valid_from is null or m.valid_from <= as_of) and (m.valid_to is null or m.valid_to > as_of))
    );
end;
comment on function _mindful.memory_is_true(bigint, timestamptz) is
'Returns whether the tenant has a memory that is valid at a time (NULL: at any time).';

create function memory_neighbors(
    id bigint,
    depth integer default 1,
    relations text[] default null,
    direction text default 'both',
    k integer default 50,
    fanout integer default 20,
    as_of timestamptz default now()
) returns setof memory_neighbor
language sql stable parallel safe security invoker rows 50
begin atomic
    with recursive argument as (
        select _mindful.memory_argument('id', id) as id,
            _mindful.integer_argument('depth', depth, 1, 5) as depth,
            _mindful.direction_argument(direction) as direction,
            _mindful.integer_argument('k', k, 1, 1000) as k,
            _mindful.integer_argument('fanout', fanout, 1, 1000) as fanout,
            _mindful.range_argument('as_of', as_of) as as_of
    ),
    step as (
        select a.id, null::text as relation, 1::double precision as weight, 0 as depth, array[a.id] as path
        from argument a
        union all
        select n.id, n.relation, s.weight * n.weight, s.depth + 1, s.path || n.id
        from step s
        cross join argument a
        cross join lateral (
            (
                select o.target_id as id, o.relation, o.weight
                from mindful.memory_link o
                where o.tenant = (select _mindful.tenant()) and o.source_id = s.id and a.direction <> 'in'
                    and (relations is null or o.relation = any (relations))
                    and o.target_id <> all (s.path)
                    and _mindful.memory_is_true(o.target_id, a.as_of)
                order by o.weight desc
                limit a.fanout
            )
            union all
            (
                select i.source_id, i.relation, i.weight
                from mindful.memory_link i
                where i.tenant = (select _mindful.tenant()) and i.target_id = s.id and a.direction <> 'out'
                    and (relations is null or i.relation = any (relations))
                    and i.source_id <> all (s.path)
                    and _mindful.memory_is_true(i.source_id, a.as_of)
                order by i.weight desc
                limit a.fanout
            )
            order by weight desc
            limit a.fanout
        ) n
        where s.depth < a.depth
    ),
    -- Rows come level by level, so the limit cuts the farthest.
    walked as (
        select s.id, s.relation, s.weight, s.depth, s.path from step s limit 10000
    ),
    best as (
        select distinct on (w.id) w.id, w.relation, w.weight, w.depth, w.path
        from walked w
        where w.depth > 0
        order by w.id, w.depth, w.weight desc, w.path
    )
    select m.id, m.content, m.kind, b.relation, _mindful.real(b.weight), b.depth, b.path
    from best b
    join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.id = b.id
    order by b.depth, b.weight desc, m.id
    limit (select a.k from argument a);
end;
comment on function memory_neighbors(bigint, integer, text[], text, integer, integer, timestamptz) is
'Returns the k nearest memories that links lead to from a memory, at most depth (1 to 5) links away, nearest first. Each memory comes once.
Example: SELECT content, relation, path FROM memory_neighbors(3, depth => 2, relations => ''{works_for}'');
Errors: 22004, 22008 (as_of is outside the years 1 to 9999), 22023, 42704 (the tenant has no such memory).';
