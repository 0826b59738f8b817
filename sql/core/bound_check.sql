-- A time outside the years 1 to 9999 makes every query fail that returns it, views for all tenants included.
do $do$
declare
    moment record;
    security text := current_setting('row_security');
begin
    perform set_config('row_security', 'off', true);  -- Triggers check only users' changes, see is_restore.
    for moment in
        select c.relname as relation, a.attname as name, a.attname like 'valid\_%' as is_open,
            format('%s_%s_range', c.relname, a.attname) as rule
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.atttypid = 'timestamptz'::regtype
        where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'r'
            and exists (select from pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant' and not t.attisdropped)
            and not exists (select from pg_constraint k where k.conrelid = c.oid and k.conname = format('%s_%s_range', c.relname, a.attname))
        order by c.relname, a.attnum
    loop
        -- Version 0.1.0 accepted any time.
        execute format('update mindful.%1$I t set %2$I = least(greatest(t.%2$I, %3$L), %4$L)
            where not _mindful.time_is_readable(t.%2$I) and (isfinite(t.%2$I) or not %5$L::boolean)',
            moment.relation, moment.name, '0001-01-02 00:00:00+00', '9999-12-30 00:00:00+00', moment.is_open);
        execute format('alter table mindful.%I add constraint %I check (%s)', moment.relation, moment.rule,
            format(case when moment.is_open then '_mindful.time_is_readable(%1$I) or not isfinite(%1$I)'
                else '_mindful.time_is_readable(%1$I)' end, moment.name));
    end loop;
    perform set_config('row_security', security, true);
end
$do$;
