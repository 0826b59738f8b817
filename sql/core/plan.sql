-- The caller chooses the settings under which a SECURITY DEFINER function runs. With debug_print_plan and its relatives
-- the server would send the caller the function's plans, including texts and vectors of other tenants.
do $do$
declare
    found record;
begin
    for found in
        select p.oid::regprocedure as signature
        from pg_proc p
        where p.prosecdef and (p.pronamespace in ('mindful'::regnamespace, '_mindful'::regnamespace) or exists (
            select from pg_depend d join pg_extension e on e.oid = d.refobjid
            where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.refclassid = 'pg_extension'::regclass
                and d.deptype = 'x' and e.extname = 'mindful'
        ))
        order by p.oid
    loop
        execute format('alter function %s set debug_print_parse = off', found.signature);
        execute format('alter function %s set debug_print_rewritten = off', found.signature);
        execute format('alter function %s set debug_print_plan = off', found.signature);
    end loop;
end
$do$;

-- A plan that is turned off costs ten billion where there is no other. PostgreSQL would compile it, which takes longer than
-- any statement of ours.
do $do$
declare
    found record;
begin
    for found in
        select p.oid::regprocedure as signature
        from pg_proc p
        where p.pronamespace in ('mindful'::regnamespace, '_mindful'::regnamespace)
            and exists (select from unnest(p.proconfig) c where c ~ '^enable_\w+=off$')
        order by p.oid
    loop
        execute format('alter function %s reset jit', found.signature);  -- 0.2.0 had it elsewhere in the list
        execute format('alter function %s set jit = off', found.signature);
    end loop;
end
$do$;
