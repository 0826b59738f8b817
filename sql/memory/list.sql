create type memory_detail as (
    id bigint,
    content text,
    kind text,
    metadata jsonb,
    session_id uuid,
    turn integer,
    role text,
    source text,
    source_key text,
    importance real,
    confidence real,
    level text,
    valid_from timestamptz,
    valid_to timestamptz,
    superseded_by bigint,
    created_at timestamptz
);
comment on type memory_detail is 'A memory as memory_get and memory_list return it.';

create function _mindful.memory_detail(m memory) returns memory_detail
language sql immutable parallel safe security invoker
begin atomic
    select row(m.id, m.content, m.kind, m.metadata, m.session_id, m.turn, m.role, m.source, m.source_key, m.importance,
        m.confidence, m.level, m.valid_from, m.valid_to, m.superseded_by, m.created_at)::mindful.memory_detail;
end;
comment on function _mindful.memory_detail(memory) is 'Returns a row of memory without internal columns.';

create function memory_get(id bigint) returns memory_detail
language sql stable parallel safe security invoker
begin atomic
    select _mindful.memory_detail(m)
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = (select _mindful.memory_argument('id', memory_get.id));
end;
comment on function memory_get(bigint) is
'Returns a memory by its id.
Example: SELECT content, valid_to FROM memory_get(17);
Errors: 22004, 42704 (the tenant has no such memory).';

create function memory_list(
    kinds text[] default null,
    metadata jsonb default null,
    session_id uuid default null,
    as_of timestamptz default now(),
    before_id bigint default null,
    max_count integer default 100
) returns setof memory_detail
language plpgsql stable parallel safe security invoker rows 100
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_sort = off  -- The primary key gives the order. Without statistics, the planner would sort all memories of the tenant.
as $$
declare
    filter mindful.recall_filter := _mindful.recall_filter(kinds, metadata, session_id,
        _mindful.range_argument('as_of', as_of), false);
begin
    perform _mindful.integer_argument('max_count', max_count, 1, 1000);
    return query
    select (_mindful.memory_detail(m)).*
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id < coalesce(before_id, 9223372036854775807)
        and _mindful.recall_admits(filter, m)
    order by m.tenant desc, m.id desc
    limit max_count;
end
$$;
comment on function memory_list(text[], jsonb, uuid, timestamptz, bigint, integer) is
'Returns memories by id, newest first, at most max_count (1 to 1000). before_id: only smaller ids; pass the last id of a page to get the next page.
Example: SELECT id, content FROM memory_list(kinds => ''{fact}'', before_id => 1200, max_count => 20);
Errors: 22004, 22008 (as_of is finite and outside the years 1 to 9999), 22023.';
