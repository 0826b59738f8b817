\echo Use "CREATE EXTENSION mindful_partition" to load this file. \quit

create table served (
    number integer primary key,
    map text not null,
    state text not null default 'here' check (state in ('here', 'gone'))
);
comment on table served is 'The numbers of partitions that this database holds or held.';
comment on column served.map is 'Id of the map, number of partitions, and version of this partition''s place.';
comment on column served.state is 'here, or gone if the partition was moved elsewhere.';
select pg_catalog.pg_extension_config_dump('mindful_route.served', '');

create table gate (nothing boolean);
comment on table gate is 'Routed calls read it, and a move locks it to let them end and keep others waiting. It has no rows.';

create function refuse(number integer, map text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful_route, pg_temp
as $$
declare
    known mindful_route.served := (select s from mindful_route.served s where s.number = refuse.number);
    theirs text[] := string_to_array(map, '/');
    mine text[] := string_to_array(known.map, '/') || (select e.extversion from pg_extension e where e.extname = 'mindful');
begin
    if known.number is null or known.state = 'gone' then
        perform _mindful.raise('40001', format('partition %s is not in the database %s', number, current_database()),
            'The partition was moved. Call again. If that fails, the map of the router is old: run mindful partition check.');
    elsif theirs[1] is distinct from mine[1] then
        perform _mindful.raise('55000', format('the router has the map %s and partition %s belongs to the map %s', theirs[1], number, mine[1]),
            'All routers of a partition must have the same map. Run mindful partition check.');
    elsif theirs[4] is distinct from mine[4] then
        perform _mindful.raise('0A000', format('the router has version %s and partition %s has version %s', theirs[4], number, mine[4]),
            'Update mindful, mindful_partition and mindful_router to one version.');
    end if;
    perform _mindful.raise('40001', format('the router has version %s of the place of partition %s of %s, and the partition has version %s of %s',
        theirs[3], number, theirs[2], mine[3], mine[2]),
        'The map changed. Call again. If that fails, run mindful partition check.');
end
$$;
comment on function refuse(integer, text) is
'Raises why a call is not for this partition. Errors: 40001 (the partition was moved, or the map has another version), 55000 (another map), 0A000 (another version of the extension).';

create function enter(number integer, map text, tenant text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful_route, pg_temp
set plan_cache_mode = force_generic_plan
set lock_timeout = '30s'
as $$
begin
    begin
        -- Not an advisory lock: every role can take those, and would stop all calls.
        perform from mindful_route.gate;
    exception when lock_not_available then
        perform _mindful.raise('55P03', format('partition %s is being moved', number), 'Call again in a minute.');
    end;
    if map like '%/read only' then
        perform set_config('transaction_read_only', 'on', true);
        map := left(map, -10);
    end if;
    if not exists (
        select from mindful_route.served s, pg_extension e
        where s.number = enter.number and s.state = 'here' and e.extname = 'mindful' and enter.map = s.map || '/' || e.extversion
    ) then
        perform mindful_route.refuse(number, map);
    end if;
    if pg_has_role(current_user, 'mindful_application', 'usage') then
        perform mindful.tenant_set(tenant);
    elsif tenant <> current_user then
        perform _mindful.raise('42501', format('the router called for the tenant %s as the role %s', tenant, current_user),
            'A user mapping of the router must name the role itself, or a member of mindful_application.');
    end if;
end
$$;
comment on function enter(integer, text, text) is
'Begins a routed call: waits while the partition is moved, compares the map, and sets the tenant until the transaction ends. Errors: 40001, 55000, 0A000 (see refuse), 42501 (the role may not act for the tenant), 55P03 (a move lasts longer than 30 s).';
