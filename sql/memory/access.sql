-- A table of its own: counting a use must not rewrite the row of memory.
create table memory_access (
    tenant text not null default _mindful.tenant(),
    id bigint not null,
    access_count bigint not null default 1 check (access_count > 0),
    last_accessed_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, id) references memory on delete cascade
);
comment on table memory_access is
'How often a memory was shown to a model or marked as used, and when last.';

alter table memory_access enable row level security, force row level security;
create policy own on memory_access using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.memory_access', '');
create function memory_access_record(ids bigint[]) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select _mindful.writable();
    with used as materialized (
        select distinct i.id from pg_catalog.unnest(ids) i (id)
        -- Under an older snapshot, a count by another transaction is a serialization error.
        where pg_catalog.current_setting('transaction_isolation') = 'read committed'
    ),
    -- Rows that another transaction has locked are skipped.
    counted as materialized (
        select c.id
        from used u
        cross join lateral (
            select a.id from mindful.memory_access a
            where a.tenant = (select _mindful.tenant()) and a.id = u.id
            for update skip locked
        ) c
    ),
    again as (
        update mindful.memory_access a set access_count = a.access_count + 1, last_accessed_at = pg_catalog.now()
        from counted c
        where a.tenant = (select _mindful.tenant()) and a.id = c.id
        returning 1
    ),
    -- If there is no row yet, the lock on the memory keeps two transactions from inserting it.
    uncounted as materialized (
        select n.id
        from used u
        cross join lateral (
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.id = u.id and not exists (
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
comment on function memory_access_record(bigint[]) is
'Counts one use of each of these memories, and returns the number of memories counted.
It never waits. It skips memories that another open transaction is counting, memories of other tenants, and all of them if the isolation level is above read committed.';
