create function memory_access_insert(ids bigint[]) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._writable();
    with own as materialized (
        select m.id
        from (select distinct i.id from pg_catalog.unnest(ids) i (id)) u
        join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = u.id
    ),
    used as (
        insert into mindful.memory_access as a (id)
        select o.id
        from own o
        -- Under an older snapshot another's count is a conflict; and a row that another holds is left to him.
        where pg_catalog.current_setting('transaction_isolation') = 'read committed'
            and pg_catalog.pg_try_advisory_xact_lock(1835626094, pg_catalog.hashint8(o.id))
        on conflict (tenant, id) do update set access_count = a.access_count + 1, last_accessed_at = excluded.last_accessed_at
        returning 1
    )
    select pg_catalog.count(*) from used;
end;
comment on function memory_access_insert(bigint[]) is
'Counts that memories were used, once each, and returns how many it counted. Nobody waits: a memory that another open transaction is counting is left out, as are those of other tenants, and all under an isolation above read committed.';
