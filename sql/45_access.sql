create function memory_access_insert(ids bigint[]) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._writable();
    with used as materialized (
        select distinct i.id from pg_catalog.unnest(ids) i (id)
        -- Under an older snapshot another's count is a conflict.
        where pg_catalog.current_setting('transaction_isolation') = 'read committed'
    ),
    -- A row that another transaction holds is left to it.
    counted as materialized (
        select c.id
        from used u
        cross join lateral (
            select a.id from mindful.memory_access a
            where a.tenant = (select mindful._tenant()) and a.id = u.id
            for update skip locked
        ) c
    ),
    again as (
        update mindful.memory_access a set access_count = a.access_count + 1, last_accessed_at = pg_catalog.now()
        from counted c
        where a.tenant = (select mindful._tenant()) and a.id = c.id
        returning 1
    ),
    -- Where there is no row yet, the memory's keeps two transactions from inserting it.
    uncounted as materialized (
        select n.id
        from used u
        cross join lateral (
            select m.id from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = u.id and not exists (
                select from mindful.memory_access a where a.tenant = m.tenant and a.id = m.id
            )
            for no key update of m skip locked
        ) n
    ),
    first as (
        insert into mindful.memory_access (id) select n.id from uncounted n
        on conflict do nothing
        returning 1
    )
    select (select pg_catalog.count(*) from again) + (select pg_catalog.count(*) from first);
end;
comment on function memory_access_insert(bigint[]) is
'Counts that memories were used, once each, and returns how many it counted. Nobody waits: a memory that another open transaction is counting is left out, as are those of other tenants, and all under an isolation above read committed.';
