-- Roles belong to the cluster, so another database may have created them already. The router includes this file.
do $do$
declare
    wanted text;
begin
    foreach wanted in array array['mindful_user', 'mindful_reader', 'mindful_admin', 'mindful_application'] loop
        if not exists (select from pg_catalog.pg_roles where rolname operator(pg_catalog.=) wanted) then
            execute pg_catalog.format('create role %I nologin', wanted);
        end if;
    end loop;
    if not pg_catalog.pg_has_role('mindful_application', 'mindful_user', 'member') then
        grant mindful_user to mindful_application;
    end if;
end
$do$;

-- The owner of a schema can add functions to it, so the extension accepts only a schema of its own.
do $do$
begin
    if (select nspowner::pg_catalog.regrole::pg_catalog.text from pg_catalog.pg_namespace where nspname operator(pg_catalog.=) 'mindful')
        operator(pg_catalog.<>) current_user::pg_catalog.regrole::pg_catalog.text
    then
        raise exception using errcode = '42501', message = 'mindful: the schema mindful exists and belongs to another role',
            hint = 'Check its contents, then drop it or change its owner to the role that creates the extension.';
    end if;
end
$do$;
