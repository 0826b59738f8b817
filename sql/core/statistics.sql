-- Row-level security hides rows, but EXPLAIN shows estimates. For leakproof operators the planner makes them from
-- statistics of all tenants' rows. Therefore ANALYZE gathers no statistics of columns and indexed expressions here.
create function _mindful.statistics_remove() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    part record;
begin
    for part in
        select c.oid, c.oid::regclass as relation, a.attname, a.attnum, i.indrelid is not null as is_index
        from pg_class c
        left join pg_index i on i.indexrelid = c.oid
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace = 'mindful'::regnamespace and a.attstattarget is distinct from 0
            and (c.relkind = any ('{r,p,m}') or i.indkey[a.attnum - 1] = 0)
        order by c.oid, a.attnum
    loop
        if part.is_index then
            execute format('alter index %s alter column %s set statistics 0', part.relation, part.attnum);
        else
            execute format('alter table %s alter column %I set statistics 0', part.relation, part.attname);
        end if;
    end loop;
    -- ANALYZE does not remove the statistics that older versions gathered.
    delete from pg_statistic s using pg_class c where c.oid = s.starelid and c.relnamespace = 'mindful'::regnamespace;
    delete from pg_statistic_ext_data d using pg_statistic_ext s, pg_class c
    where s.oid = d.stxoid and c.oid = s.stxrelid and c.relnamespace = 'mindful'::regnamespace;
end
$$;
comment on function _mindful.statistics_remove() is
'Removes the planner''s statistics of the schema mindful, and stops ANALYZE from gathering them. It covers columns and indexed expressions. For the extension''s owner.';
revoke execute on function _mindful.statistics_remove() from public, mindful_user, mindful_admin;
select _mindful.statistics_remove();
