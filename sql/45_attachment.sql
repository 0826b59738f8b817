create table attachment (
    tenant text not null default _tenant(),
    relation regclass not null,
    source text not null,
    content text not null,
    mode text not null check (mode in ('sync', 'async')),
    created_at timestamptz not null default now(),
    primary key (tenant, relation)
);
comment on table attachment is 'Tables of applications whose rows are remembered.';
comment on column attachment.source is 'The table''s name when it was attached, which its memories carry.';
comment on column attachment.mode is 'Whether rows are embedded within the statement that writes them (sync) or later, by a worker (async).';
comment on column attachment.content is 'The SQL expression over a row that gives the text to remember.';
alter table attachment enable row level security, force row level security;
create policy own on attachment using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.attachment', '');

create function _relation_name(relation oid) returns text
language sql stable strict parallel safe security invoker
begin atomic
    select pg_catalog.format('%I.%I', n.nspname, c.relname)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = relation;
end;
comment on function _relation_name(oid) is 'A relation''s name, always with its schema.';

create function _attachment_delete(source text, keys text[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    if keys is null then
        perform mindful._memory_delete(array(
            select m.id from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.source = _attachment_delete.source
        ));
    elsif keys <> '{}' then
        perform mindful._memory_delete(array(
            select gone.id
            from unnest(keys) k (key)
            cross join lateral (
                select s.id from mindful.memory s
                where s.tenant = (select mindful._tenant()) and s.source = _attachment_delete.source and s.source_key = k.key
                offset 0
            ) gone
        ));
    end if;
end
$$;
comment on function _attachment_delete(text, text[]) is 'Forgets the memories of deleted rows, or of all (NULL).';

create function _attachment_write(source text, keys text[], contents text[]) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful._attachment_delete(_attachment_write.source, array(
        select w.key
        from rows from (pg_catalog.unnest(keys), pg_catalog.unnest(contents)) w (key, content)
        where pg_catalog.btrim(coalesce(w.content, ''), E' \t\n\r') = ''
    ));
    insert into mindful.memory as m (kind, content, source, source_key)
    select 'document', w.content, _attachment_write.source, w.key
    from rows from (pg_catalog.unnest(keys), pg_catalog.unnest(contents)) w (key, content)
    where pg_catalog.btrim(coalesce(w.content, ''), E' \t\n\r') <> ''
    on conflict (tenant, source, source_key) where source is not null do update set content = excluded.content
        where m.content <> excluded.content;
end;
comment on function _attachment_write(text, text[], text[]) is
'Makes memories of rows, by primary key: new texts are added, changed ones replaced, rows without a text forgotten.';

create function memory_attach(relation regclass, content text, mode text default 'sync') returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set extra_float_digits = 1
set bytea_output = 'hex'
set client_min_messages = warning
as $$
declare
    target pg_class := (select c from pg_class c where c.oid = relation);
    schema_name name := (select n.nspname from pg_namespace n where n.oid = target.relnamespace);
    full_name text := mindful._relation_name(relation);
    function_name text := format('remember_%s', md5(full_name));
    dropped mindful.attachment;
    key text;
    body text;
    event text;
    keys text[];
    contents text[];
    outer_mode text := coalesce(current_setting('mindful.embedding_mode', true), '');
    remembered bigint;
begin
    perform mindful._writable();
    perform mindful._text_argument('content', content);
    -- Tables that were dropped while they were attached.
    for dropped in
        select a.* from mindful.attachment a
        where a.tenant = mindful._tenant() and not exists (select from pg_class c where c.oid = a.relation)
    loop
        full_name := dropped.source;
        perform mindful._delete('attachment', jsonb_build_array(jsonb_build_object('relation', dropped.relation::oid::text)));
        perform mindful._attachment_delete(full_name, null);
        execute format('drop function if exists %I.%I()', (parse_ident(full_name))[1], 'remember_' || md5(full_name));
    end loop;
    full_name := mindful._relation_name(relation);
    if relation is null then
        perform mindful._raise('22004', 'relation is null', 'Name a table.');
    elsif target.relkind <> 'r' then
        perform mindful._raise('42809', format('%s is not an ordinary table', full_name),
            'Attach the tables or partitions that hold its rows.');
    elsif schema_name in ('mindful', 'pg_catalog', 'pg_toast', 'information_schema') then
        perform mindful._raise('42809', format('%s belongs to %s', full_name,
            case schema_name when 'mindful' then 'mindful' else 'the server' end), 'Attach a table of an application.');
    elsif target.relowner <> current_user::regrole then
        perform mindful._raise('42501', format('%s is owned by %s', full_name, target.relowner::regrole),
            'Only its owner can attach a table: SET ROLE to the owner first.');
    elsif mode is null or mode not in ('sync', 'async') then
        perform mindful._raise('22023', format('mode is %s', coalesce(quote_literal(mode), 'null')),
            'Modes are sync and async.');
    elsif exists (
        select from mindful.attachment a
        where a.tenant = mindful._tenant() and (a.relation = memory_attach.relation or a.source = full_name)
    ) then
        perform mindful._raise('42710', format('%s is attached already', full_name),
            format('Detach it first: SELECT memory_detach(%L).', full_name));
    end if;
    select case count(*)
        when 1 then min(format('r.%I::text', a.attname))
        else format('array[%s]::text', string_agg(format('r.%I::text', a.attname), ', ' order by k.position))
    end into key
    from pg_index i
    cross join unnest(i.indkey) with ordinality k (attribute, position)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attribute
    where i.indrelid = relation and i.indisprimary;
    if key is null or key = 'array[]::text' then
        perform mindful._raise('42P16', format('%s has no primary key', full_name),
            'Add one: a memory follows its row by it.');
    end if;

    -- The function runs as the table's owner, whoever changes its rows, so all its memories have one tenant; and the
    -- owner answers for the expression. Nothing of the table's schema is on its path, where others may create.
    body := format($body$
        #variable_conflict use_column
        declare
            keys text[];
            contents text[];
            outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
            outer_mode text := coalesce(current_setting('mindful.embedding_mode', true), '');
        begin
            if (select c.relowner <> current_user::regrole from pg_class c where c.oid = tg_relid) then
                raise exception using errcode = '55000', message = 'mindful: the table has another owner than when it was attached',
                    hint = 'Have its former owner detach it, or drop its triggers named remember_*.';
            end if;
            -- Whoever writes may have set another tenant, which would be believed if the owner is an application.
            perform set_config('mindful.tenant', %1$L, true), set_config('mindful.embedding_mode', %5$L, true);
            if tg_op = 'TRUNCATE' then
                perform mindful._attachment_delete(%2$L, null);
            elsif tg_op = 'DELETE' then
                perform mindful._attachment_delete(%2$L, array(select %3$s from old_rows r));
            elsif tg_op = 'UPDATE' then
                perform mindful._attachment_delete(%2$L,
                    array(select %3$s from old_rows r except select %3$s from new_rows r));
            end if;
            if tg_op in ('INSERT', 'UPDATE') then
                for keys, contents in
                    select array_agg(key), array_agg(content)
                    from (select %3$s as key, (%4$s)::text as content, row_number() over () as n from new_rows r) s
                    group by n / 1000
                loop
                    perform mindful._attachment_write(%2$L, keys, contents);
                end loop;
            end if;
            perform set_config('mindful.tenant', outer_tenant, true),
                set_config('mindful.embedding_mode', outer_mode, true);
            return null;
        end
        $body$, mindful._tenant_required(), full_name, key, content, mode);
    -- Time zone and formats: a row's key must read the same in every session. Plans would show writers what they may not read.
    execute format($create$
        create function %I.%I() returns trigger
        language plpgsql security definer
        set search_path = pg_catalog, mindful, pg_temp
        set timezone = 'UTC'
        set datestyle = 'ISO'
        set intervalstyle = 'postgres'
        set extra_float_digits = 1
        set bytea_output = 'hex'
        set row_security = on
        set debug_print_parse = off
        set debug_print_rewritten = off
        set debug_print_plan = off
        as %L
        $create$, schema_name, function_name, body);
    execute format('revoke execute on function %I.%I() from public', schema_name, function_name);
    foreach event in array array[
        'remember_inserted after insert on %1$s referencing new table as new_rows',
        'remember_updated after update on %1$s referencing old table as old_rows new table as new_rows',
        'remember_deleted after delete on %1$s referencing old table as old_rows',
        'remember_truncated after truncate on %1$s'
    ] loop
        -- A restored row comes with its memory: pg_dump's scripts turn row_security off. Nobody but the owner, and
        -- who has the owner's rights, keeps the triggers still in this way.
        execute format('create trigger ' || event || $call$ for each statement
            when (pg_catalog.current_setting('row_security') = 'on' or not pg_catalog.pg_has_role(%4$L, 'usage'))
            execute function %2$I.%3$I()$call$, full_name, schema_name, function_name, current_user);
        execute format('alter trigger %s on %s depends on extension mindful', split_part(event, ' ', 1), full_name);
    end loop;
    execute format('alter function %I.%I() depends on extension mindful', schema_name, function_name);
    insert into mindful.attachment (relation, source, content, mode) values (relation, full_name, content, mode);
    perform set_config('mindful.embedding_mode', mode, true);
    for keys, contents in execute format('
        select array_agg(key), array_agg(content)
        from (select %s as key, (%s)::text as content, row_number() over () as n from %s r) s
        group by n / 1000', key, content, full_name)
    loop
        perform mindful._attachment_write(full_name, keys, contents);
    end loop;
    perform set_config('mindful.embedding_mode', outer_mode, true);
    select count(*) into remembered from mindful.memory m
    where m.tenant = mindful._tenant() and m.source = full_name;
    return remembered;
end
$$;
comment on function memory_attach(regclass, text, text) is
'Remembers the rows of a table, those it has and those to come: content is an SQL expression over its columns, such as ''subject || body''. Inserts and updates are embedded in one batch a statement, in the same transaction, or with mode async later by a worker (see job_run), so that writers wait for no model; deleted rows, and rows whose expression is NULL or empty, are forgotten. The memories belong to the role that attaches the table, its owner. Returns the number of rows remembered at once. With mode sync writers wait while the rows that are there are embedded. Sessions'' settings do not touch the expression: it is evaluated with time zone UTC and ISO dates, and names functions and operators outside pg_catalog with their schema. A column it names cannot be renamed while the table is attached without breaking the table''s writes. Errors: 42P01 (no such table), 42501 (not its owner), 42P16 (no primary key), 42710 (attached already), 42703 (no such column), 22004, 22023, 42809.';

create function memory_detach(relation regclass) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    remember regprocedure := (
        select t.tgfoid from pg_trigger t where t.tgrelid = relation and t.tgname = 'remember_inserted'
    );
    event text;
    attached_as text;
begin
    perform mindful._writable();
    select a.source into attached_as from mindful.attachment a
    where a.tenant = mindful._tenant() and a.relation = memory_detach.relation
    for update;
    if not found then
        perform mindful._raise('42704', format('%s is not attached', coalesce(relation::text, 'null')),
            'The tables that you attached are listed in mindful.attachment.');
    end if;
    perform mindful._delete('attachment', jsonb_build_array(jsonb_build_object('relation', relation::oid::text)));
    foreach event in array array['inserted', 'updated', 'deleted', 'truncated'] loop
        execute format('drop trigger remember_%s on %s', event, relation);
    end loop;
    execute format('drop function %s', remember);
    return mindful._memory_delete(array(
        select m.id from mindful.memory m where m.tenant = mindful._tenant() and m.source = attached_as for update
    ));
end
$$;
comment on function memory_detach(regclass) is
'Undoes memory_attach: removes the triggers and forgets the table''s memories, whose number is returned. Error 42704: not attached.';

