-- Whoever calls a function that runs with its owner's rights, or fires a trigger that does, chooses the settings it runs with:
-- by these the server would send the caller the plans within it, and the texts and vectors that are their parameters.
do $do$
declare
    found record;
begin
    for found in
        select p.oid::regprocedure as signature
        from pg_proc p
        where p.prosecdef and (p.pronamespace = 'mindful'::regnamespace or exists (
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
