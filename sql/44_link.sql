create table memory_link (
    tenant text not null default _tenant(),
    source_id bigint not null,
    target_id bigint not null,
    relation text not null check (relation ~ '^[a-z][a-z0-9_]{0,62}$'),
    weight real not null default 1 check (weight between 0 and 1),
    created_at timestamptz not null default now(),
    primary key (tenant, source_id, target_id, relation),
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, target_id) references memory (tenant, id) on delete cascade,
    check (source_id <> target_id)
);
-- The strongest links first, as memory_neighbors follows them.
create index on memory_link (tenant, source_id, weight desc) where source_id is not null;
create index on memory_link (tenant, target_id, weight desc) where target_id is not null;
comment on table memory_link is 'What one memory has to do with another.';

alter table memory_link enable row level security, force row level security;
create policy own on memory_link using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_link', '');

create function memory_link_insert(source_id bigint, target_id bigint, relation text, weight real default 1) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    is_new boolean;
begin
    perform mindful._writable();
    if memory_link_insert.source_id = memory_link_insert.target_id then
        perform mindful._raise('22023', format('memory %s is linked to itself', memory_link_insert.source_id),
            'Link two memories.');
    elsif memory_link_insert.relation is null or memory_link_insert.relation !~ '^[a-z][a-z0-9_]{0,62}$' then
        perform mindful._raise('22023', format('relation is %s', coalesce(quote_literal(memory_link_insert.relation), 'null')),
            'Name it in lower case, such as works_for.');
    end if;
    insert into mindful.memory_link as l (source_id, target_id, relation, weight)
    values (
        mindful._memory_argument('source_id', memory_link_insert.source_id),
        mindful._memory_argument('target_id', memory_link_insert.target_id),
        memory_link_insert.relation,
        coalesce(mindful._share_argument('weight', to_jsonb(memory_link_insert.weight)), 1)
    )
    on conflict (tenant, source_id, target_id, relation) do update set weight = excluded.weight
    returning l.xmax = 0 into is_new;
    return is_new;
end
$$;
comment on function memory_link_insert(bigint, bigint, text, real) is
'Says what one memory has to do with another, from source to target, and returns whether that is new; a link that is there already is given the weight, from 0 to 1 (NULL: 1). Errors: 22004, 22023 (relation, weight, a link to itself), 42704 (no such memory of yours).';

create function memory_link_delete(source_id bigint, target_id bigint, relation text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._writable();
    source_id := mindful._memory_argument('source_id', source_id);
    target_id := mindful._memory_argument('target_id', target_id);
    return (
        select mindful._delete('memory_link', jsonb_agg(to_jsonb(l)))
        from (
            select l.source_id, l.target_id, l.relation
            from mindful.memory_link l
            where l.tenant = (select mindful._tenant())
                and l.source_id = memory_link_delete.source_id and l.target_id = memory_link_delete.target_id
                and (memory_link_delete.relation is null or l.relation = memory_link_delete.relation)
            for update
        ) l
    );
end
$$;
comment on function memory_link_delete(bigint, bigint, text) is
'Deletes the link of a relation, or all (NULL), from one memory to another, and returns how many there were. Errors: 22004, 42704 (no such memory of yours).';

create type memory_neighbor as (
    id bigint,
    content text,
    kind text,
    relation text,
    weight real,
    depth integer,
    path bigint[]
);
comment on type memory_neighbor is 'A memory, and the links that lead to it.';

create function _direction_argument(direction text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when direction = any (array['both', 'out', 'in']) then direction
        else mindful._raise('22023', pg_catalog.format('direction is %s', coalesce(pg_catalog.quote_literal(direction), 'null')),
            'Directions are out (from source to target), in and both.')::text
    end;
end;
comment on function _direction_argument(text) is 'Returns a direction, or raises 22023.';

create function _memory_is_true(id bigint, as_of timestamptz) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select exists (
        select from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.id = _memory_is_true.id
            and (as_of is null
                or (m.valid_from is null or m.valid_from <= as_of) and (m.valid_to is null or m.valid_to > as_of))
    );
end;
comment on function _memory_is_true(bigint, timestamptz) is 'Whether the tenant has a memory, and it is true at a time (NULL: at any).';

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
        select mindful._memory_argument('id', id) as id,
            mindful._integer_argument('depth', depth, 1, 5) as depth,
            mindful._direction_argument(direction) as direction,
            mindful._integer_argument('k', k, 1, 1000) as k,
            mindful._integer_argument('fanout', fanout, 1, 1000) as fanout,
            mindful._range_argument('as_of', as_of) as as_of
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
                where o.tenant = (select mindful._tenant()) and o.source_id = s.id and a.direction <> 'in'
                    and (relations is null or o.relation = any (relations))
                    and o.target_id <> all (s.path)
                    and mindful._memory_is_true(o.target_id, a.as_of)
                order by o.weight desc
                limit a.fanout
            )
            union all
            (
                select i.source_id, i.relation, i.weight
                from mindful.memory_link i
                where i.tenant = (select mindful._tenant()) and i.target_id = s.id and a.direction <> 'out'
                    and (relations is null or i.relation = any (relations))
                    and i.source_id <> all (s.path)
                    and mindful._memory_is_true(i.source_id, a.as_of)
                order by i.weight desc
                limit a.fanout
            )
            order by weight desc
            limit a.fanout
        ) n
        where s.depth < a.depth
    ),
    -- Rows come level by level, so what is cut is farthest.
    walked as (
        select s.id, s.relation, s.weight, s.depth, s.path from step s limit 10000
    ),
    best as (
        select distinct on (w.id) w.id, w.relation, w.weight, w.depth, w.path
        from walked w
        where w.depth > 0
        order by w.id, w.depth, w.weight desc, w.path
    )
    select m.id, m.content, m.kind, b.relation, mindful._real(b.weight), b.depth, b.path
    from best b
    join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = b.id
    order by b.depth, b.weight desc, m.id
    limit (select a.k from argument a);
end;
comment on function memory_neighbors(bigint, integer, text[], text, integer, integer, timestamptz) is
'The memories that links lead to from one, up to 5 links away, nearest first and at most k: each once, by its shortest path and of those the strongest, with that path, its last relation and the product of its weights. From each memory the fanout strongest links are followed, of some relations (NULL: all), in the direction of the links (out), against it (in) or both, through memories that are true at a time (NULL: at any); at most 10,000 paths in all. Errors: 22004, 22008 (as_of outside the years 1 to 9999), 22023, 42704 (no such memory of yours).';
