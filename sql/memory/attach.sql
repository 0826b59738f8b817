create table attachment (
    tenant text not null default _mindful.tenant(),
    relation regclass not null,
    source text not null,
    content text not null,
    mode text not null check (mode in ('sync', 'async')),
    created_at timestamptz not null default now(),
    metadata text,
    row_tenant text,
    primary key (tenant, relation)
);
comment on table attachment is
'Tables of applications whose rows are memories.';
comment on column attachment.source is 'The table''s name when it was attached, which its memories carry.';
comment on column attachment.mode is 'Whether rows are embedded within the statement that writes them (sync) or later, by a worker (async).';
comment on column attachment.content is 'The SQL expression over a row that gives the text to remember.';
comment on column attachment.metadata is 'The SQL expression over a row that gives its memory''s metadata; NULL: none.';
comment on column attachment.row_tenant is 'The SQL expression over a row that gives its memory''s tenant; NULL: the tenant that attached the table.';
alter table attachment enable row level security, force row level security;
create policy own on attachment using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.attachment', '');

create table attachment_tenant (
    tenant text not null default _mindful.tenant(),
    relation regclass not null,
    row_tenant text not null,
    primary key (tenant, relation, row_tenant),
    foreign key (tenant, relation) references attachment on delete cascade
);
comment on table attachment_tenant is 'Tenants that have had memories of rows of an attached table with an expression for the tenant.';
alter table attachment_tenant enable row level security, force row level security;
create policy own on attachment_tenant using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.attachment_tenant', '');

create function _mindful.relation_name(relation oid) returns text
language sql stable strict parallel safe security invoker
begin atomic
    select pg_catalog.format('%I.%I', n.nspname, c.relname)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.oid = relation;
end;
comment on function _mindful.relation_name(oid) is 'A relation''s name, always with its schema.';

create function _mindful.attachment_parts(source text, keys text[]) returns table (key text, part integer, id bigint)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    return query
    with recursive found as (
        select k.key, 1 as part, s.id
        from unnest(keys) k (key)
        cross join lateral (
            select s.id from mindful.memory s
            where s.tenant = (select _mindful.tenant()) and s.source = attachment_parts.source and s.source_key = k.key
            offset 0
        ) s
        union all
        select f.key, f.part + 1, s.id
        from found f
        cross join lateral (
            select s.id from mindful.memory s
            where s.tenant = (select _mindful.tenant()) and s.source = attachment_parts.source
                and s.source_key = f.key || chr(31) || (f.part + 1)
            offset 0
        ) s
    )
    select f.key, f.part, f.id from found f;
end
$$;
comment on function _mindful.attachment_parts(text, text[]) is
'Returns the memories of rows of an attached table, part by part. The key of part n > 1 is the row''s key, chr(31) and n.';

create function _mindful.attachment_delete(source text, keys text[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if keys is null then
        perform _mindful.memory_delete(array(
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.source = attachment_delete.source
        ));
    elsif keys <> '{}' then
        perform _mindful.memory_delete(array(select p.id from _mindful.attachment_parts(source, keys) p));
    end if;
end
$$;
comment on function _mindful.attachment_delete(text, text[]) is
'Deletes the memories of rows of an attached table by primary key, or of all rows (NULL).';

create function _mindful.row_parts(contents text[]) returns table (number integer, part integer, parts integer, content text)
language plpython3u stable parallel unsafe security invoker rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.memory.document import row_parts
return row_parts(contents)
$python$;
comment on function _mindful.row_parts(text[]) is
'Splits texts that are longer than the default embedder reads into parts, as documents are. number is the position of the text. Blank texts have no parts.';

create function _mindful.attachment_write(source text, keys text[], contents text[], metadata jsonb[] default null) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    part_keys text[];
    part_contents text[];
    part_metadata jsonb[];
begin
    select array_agg(case when s.part = 1 then w.key else w.key || chr(31) || s.part end), array_agg(s.content),
        array_agg(_mindful.metadata(w.metadata)
            || case when s.parts > 1 then jsonb_build_object('part', s.part, 'parts', s.parts) else '{}' end)
    into part_keys, part_contents, part_metadata
    from _mindful.row_parts(contents) s
    join rows from (unnest(keys), unnest(attachment_write.metadata)) with ordinality w (key, metadata, number)
        on w.number = s.number;
    perform _mindful.memory_delete(array(
        select p.id from _mindful.attachment_parts(attachment_write.source, keys) p
        where case when p.part = 1 then p.key else p.key || chr(31) || p.part end <> all (coalesce(part_keys, '{}'))
    ));
    insert into mindful.memory as m (kind, content, metadata, source, source_key)
    select 'document', w.content, w.metadata, attachment_write.source, w.key
    from unnest(part_keys, part_contents, part_metadata) w (key, content, metadata)
    on conflict (tenant, source, source_key) where source is not null do update
        set content = excluded.content,
            metadata = case when attachment_write.metadata is null then m.metadata - '{part,parts}'::text[] else '{}' end
                || excluded.metadata
        where m.content <> excluded.content or not m.metadata @> excluded.metadata
            or attachment_write.metadata is not null and m.metadata <> excluded.metadata;
end
$$;
comment on function _mindful.attachment_write(text, text[], text[], jsonb[]) is
'Stores rows of an attached table as memories, by primary key. New texts are inserted, changed ones replaced, long ones split into parts, and memories of rows without a text deleted.';

create function _mindful.attachment_expression(name text, expression text, relation regclass, gives_json boolean) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    -- No row is read. OFFSET 0 keeps the planner from computing with the expression.
    nowhere text := format('from (select * from %s offset 0) r where false', _mindful.relation_name(relation));
    found_type regtype;
    message text;
    hint text;
begin
    -- Only a whole expression is right in both places, and it yields one value for a row.
    execute format(E'select %s and (%s\n) is null', nowhere, expression);
    execute format(E'select %s and case when true then %s\nend is null', nowhere, expression);
    execute format(E'select pg_typeof(e.value) from (select) one left join (select (%s\n) as value %s) e on true', expression, nowhere)
    into found_type;
    if gives_json and found_type <> all ('{json,jsonb}'::regtype[]) then
        -- A literal in quotes has no type yet.
        execute format(E'select coalesce((%s\n), null::jsonb) %s', expression, nowhere);
    end if;
exception when others then
    get stacked diagnostics message = message_text, hint = pg_exception_hint;
    if sqlstate = '42804' and found_type is not null then
        raise exception using errcode = '42804', message = format('mindful: %s is of type %s', name, found_type),
            hint = 'Pass an expression of type jsonb that gives an object, such as jsonb_build_object(''kind'', kind).';
    end if;
    raise exception using errcode = sqlstate, message = format('mindful: %s: %s', name, split_part(message, E'\n', 1)),
        hint = concat_ws(' ', format('Pass an SQL expression over the columns of %s.', _mindful.relation_name(relation)), nullif(hint, ''));
end
$$;
comment on function _mindful.attachment_expression(text, text, regclass, boolean) is
'Raises the error of an argument of memory_attach that is not an SQL expression over one row of the table.
gives_json: an expression of another type than json, jsonb or a literal raises 42804.';

create function _mindful.attachment_check(relation regclass, content text, mode text, metadata text, tenant text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    target pg_class := (select c from pg_class c where c.oid = relation);
    schema_name name := (select n.nspname from pg_namespace n where n.oid = target.relnamespace);
    full_name text := _mindful.relation_name(relation);
begin
    perform _mindful.text_argument('content', content);
    perform _mindful.text_argument('metadata', coalesce(metadata, 'x')), _mindful.text_argument('tenant', coalesce(tenant, 'x'));
    if relation is null then
        perform _mindful.raise('22004', 'relation is null', 'Name a table.');
    elsif target.relkind <> 'r' then
        perform _mindful.raise('42809', format('%s is not an ordinary table', full_name),
            'Only ordinary tables can be attached.');
    elsif exists (select from pg_inherits i where relation in (i.inhrelid, i.inhparent)) then
        -- The triggers fire for the table that a statement names, not for those that it changes.
        perform _mindful.raise('42809', format('%s is a partition, or inherits or is inherited from', full_name),
            'Copy its rows to an ordinary table by a trigger of your own, and attach that.');
    elsif schema_name in ('mindful', '_mindful', 'pg_catalog', 'pg_toast', 'information_schema') then
        perform _mindful.raise('42809', format('%s belongs to %s', full_name,
            case when schema_name in ('mindful', '_mindful') then 'mindful' else 'the server' end), 'Attach a table of an application.');
    elsif target.relowner <> current_user::regrole then
        perform _mindful.raise('42501', format('%s is owned by %s', full_name, target.relowner::regrole),
            'Only its owner can attach a table: SET ROLE to the owner first.');
    elsif tenant is not null and not pg_has_role('mindful_application', 'usage') then
        perform _mindful.raise('42501', 'tenant is passed by a role that is not a member of mindful_application',
            'Only applications write for several tenants: have the table owned by one.');
    elsif mode is null or mode not in ('sync', 'async') then
        perform _mindful.raise('22023', format('mode is %s', coalesce(quote_literal(mode), 'null')),
            'Modes are sync and async.');
    elsif exists (
        select from mindful.attachment a
        where a.tenant = _mindful.tenant() and (a.relation = attachment_check.relation or a.source = full_name)
    ) then
        perform _mindful.raise('42710', format('%s is attached already', full_name),
            format('Detach it first: SELECT memory_detach(%L).', full_name));
    end if;
end
$$;
comment on function _mindful.attachment_check(regclass, text, text, text, text) is
'Raises the errors of memory_attach that are known before its expressions are tried.';

create function _mindful.attachment_key(relation regclass) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    key text;
begin
    select case count(*)
        when 1 then min(format('r.%I::text', a.attname))
        else format('array[%s]::text', string_agg(format('r.%I::text', a.attname), ', ' order by k.position))
    end into key
    from pg_index i
    cross join unnest(i.indkey) with ordinality k (attribute, position)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attribute
    where i.indrelid = relation and i.indisprimary;
    if key is null or key = 'array[]::text' then
        perform _mindful.raise('42P16', format('%s has no primary key', _mindful.relation_name(relation)),
            'Add one: a memory follows its row by it.');
    end if;
    return key;
end
$$;
comment on function _mindful.attachment_key(regclass) is
'Returns the SQL expression over a row r of a table that gives its primary key as text. Error 42P16: it has none.';

create function _mindful.attachment_batches(rows text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.format('select tenant, array_agg(key), array_agg(content), array_agg(metadata)
        from (select r.*, row_number() over () as n from (%s) r) s
        where tenant is not null
        group by tenant, n / 1000', rows);
end;
comment on function _mindful.attachment_batches(text) is
'Returns a query that gathers the rows of a query (key, content, metadata, tenant) into arrays, by tenant, about 1000 rows each.';

create function _mindful.attachment_trigger_create(relation regclass, mode text, rows text, has_metadata boolean) returns regprocedure
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    full_name text := _mindful.relation_name(relation);
    schema_name name := (parse_ident(full_name))[1];
    function_name text := format('remember_%s', md5(full_name));
    body text;
    event text;
begin
    -- The function runs as the table's owner, whoever changes its rows, so all its memories have one tenant; and the
    -- owner answers for the expression. Nothing of the table's schema is on its path, where others may create.
    body := format($body$
        #variable_conflict use_column
        declare
            row_tenant text;
            keys text[];
            contents text[];
            metadata jsonb[];
            -- The writer may have set another tenant, which counts if the owner is an application. Only a
            -- superuser could name these settings in a SET clause, which would restore them.
            outer_tenant text := _mindful.tenant_switch(%1$L);
            outer_mode text := coalesce(current_setting('mindful.embedding_mode', true), '');
            groups refcursor;
            message text;
            detail text;
        begin
            if (select c.relowner <> current_user::regrole from pg_class c where c.oid = tg_relid) then
                raise exception using errcode = '55000', message = 'mindful: the table has another owner than when it was attached',
                    hint = 'Have its former owner detach it, or drop its triggers named remember_*.';
            end if;
            perform set_config('mindful.embedding_mode', %2$L, true);
            if tg_op = 'TRUNCATE' then
                perform _mindful.attachment_clear(tg_relid, %3$L);
            else
                loop
                    -- Only the reading of rows is within the block: an error of writing or embedding stays what it is.
                    begin
                        if groups is not null then
                            null;
                        elsif tg_op = 'DELETE' then
                            open groups for select tenant, array_agg(key), null::text[], null::jsonb[]
                                from (%4$s) r where tenant is not null group by tenant;
                        elsif tg_op = 'UPDATE' then
                            open groups for select tenant, array_agg(key), null::text[], null::jsonb[]
                                from (select key, tenant from (%4$s) r except select key, tenant from (%5$s) r) g
                                where tenant is not null
                                group by tenant
                                union all
                                %7$s;
                        else
                            open groups for %7$s;
                        end if;
                        fetch groups into row_tenant, keys, contents, metadata;
                    exception when others then
                        get stacked diagnostics message = message_text, detail = pg_exception_detail;
                        raise exception using errcode = sqlstate,
                            message = format('mindful: a row of the attached table %%s cannot be read: %%s',
                                _mindful.relation_name(tg_relid), left(message, 1000)),
                            detail = concat_ws(' ', nullif(left(detail, 1000), ''), 'The expressions of attached tables are in mindful.attachment.'),
                            hint = format('Change the row, or have the table''s owner attach it with other expressions, after SELECT memory_detach(%%L).',
                                _mindful.relation_name(tg_relid));
                    end;
                    exit when keys is null;
                    if contents is null then
                        perform _mindful.tenant_switch(row_tenant);
                        perform _mindful.attachment_delete(%3$L, keys);
                    else
                        perform _mindful.tenant_switch(%1$L);
                        perform _mindful.attachment_tenant_insert(tg_relid, row_tenant);
                        perform _mindful.tenant_switch(row_tenant);
                        perform _mindful.attachment_write(%3$L, keys, contents, %6$s);
                    end if;
                end loop;
                close groups;
            end if;
            perform _mindful.tenant_switch(outer_tenant), set_config('mindful.embedding_mode', outer_mode, true);
            return null;
        end
        $body$, _mindful.tenant_required(), mode, full_name, rows || 'old_rows r', rows || 'new_rows r',
        case when has_metadata then 'metadata' else 'null' end, _mindful.attachment_batches(rows || 'new_rows r'));
    -- A row's key and text must read the same in every session. Plans would show writers what they may not read.
    execute format($create$
        create function %I.%I() returns trigger
        language plpgsql security definer
        set search_path = pg_catalog, mindful, pg_temp
        set timezone = 'UTC'
        set datestyle = 'ISO'
        set intervalstyle = 'postgres'
        set extra_float_digits = 1
        set bytea_output = 'hex'
        set array_nulls = on
        set quote_all_identifiers = off
        set standard_conforming_strings = on
        set transform_null_equals = off
        set xmlbinary = 'base64'
        set xmloption = 'content'
        set gin_fuzzy_search_limit = 0
        set default_text_search_config from current
        set lc_monetary from current
        set lc_numeric from current
        set lc_time from current
        set timezone_abbreviations from current
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
        -- A restored row comes with its memory: pg_dump's scripts turn row_security off. Only roles
        -- with the owner's rights can keep the triggers from firing in this way.
        execute format('create trigger ' || event || $call$ for each statement
            when (pg_catalog.current_setting('row_security') = 'on' or not pg_catalog.pg_has_role(%4$L, 'usage'))
            execute function %2$I.%3$I()$call$, full_name, schema_name, function_name, current_user);
    end loop;
    return format('%I.%I()', schema_name, function_name)::regprocedure;
end
$$;
comment on function _mindful.attachment_trigger_create(regclass, text, text, boolean) is
'Creates the triggers of an attached table and their function, and returns the function. rows is a query of key, content, metadata and tenant that ends before the name of a relation.';

create function memory_attach(
    relation regclass,
    content text,
    mode text default 'sync',
    metadata text default null,
    tenant text default null
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO'
set intervalstyle = 'postgres'
set extra_float_digits = 1
set bytea_output = 'hex'
set array_nulls = on
set quote_all_identifiers = off
set standard_conforming_strings = on
set transform_null_equals = off
set xmlbinary = 'base64'
set xmloption = 'content'
set gin_fuzzy_search_limit = 0
set client_min_messages = warning
set mindful.embedding_mode = ''
as $$
declare
    full_name text := _mindful.relation_name(relation);
    dropped regclass;
    rows text;
    remember regprocedure;
    row_tenant text;
    keys text[];
    contents text[];
    metadatas jsonb[];
    remembered bigint := 0;
    outer_tenant text;
begin
    perform _mindful.writable();
    -- Tables that were dropped while they were attached.
    for dropped in
        select a.relation from mindful.attachment a
        where a.tenant = _mindful.tenant() and not exists (select from pg_class c where c.oid = a.relation)
    loop
        perform mindful.memory_detach(dropped);
    end loop;
    perform _mindful.attachment_check(relation, content, mode, metadata, tenant);
    -- Keys, texts, metadata and tenants of a relation's rows.
    rows := format(E'select %s as key, (%s\n)::text as content, (%s\n)::jsonb as metadata, (%s\n)::text as tenant from ',
        _mindful.attachment_key(relation), content, coalesce(metadata, 'null'), coalesce(tenant, quote_literal(_mindful.tenant_required())));
    perform _mindful.attachment_expression('content', content, relation, false);
    perform _mindful.attachment_expression('metadata', coalesce(metadata, 'null'), relation, true);
    perform _mindful.attachment_expression('tenant', coalesce(tenant, 'null'), relation, false);
    remember := _mindful.attachment_trigger_create(relation, mode, rows, metadata is not null);
    insert into mindful.attachment (relation, source, content, mode, metadata, row_tenant)
    values (relation, full_name, content, mode, metadata, tenant);
    perform set_config('mindful.embedding_mode', mode, true);
    for row_tenant, keys, contents, metadatas in execute _mindful.attachment_batches(rows || full_name || ' r') loop
        perform _mindful.attachment_tenant_insert(relation, row_tenant);
        outer_tenant := _mindful.tenant_switch(row_tenant);
        perform _mindful.attachment_write(full_name, keys, contents, case when metadata is not null then metadatas end);
        perform _mindful.tenant_switch(outer_tenant);
        remembered := remembered + (
            select count(*) from unnest(contents) c (content) where btrim(coalesce(c.content, ''), E' \t\n\r') <> '');
    end loop;
    -- Last, for it locks the table from readers, and the extension, until the transaction ends.
    perform _mindful.lock_briefly(format('%s or the extension mindful', full_name), (
        select string_agg(format('alter trigger %I on %s depends on extension mindful; ', t.tgname, full_name), '')
            || format('alter function %s depends on extension mindful', remember)
        from pg_trigger t where t.tgrelid = relation and t.tgfoid = remember
    ));
    return remembered;
end
$$;
comment on function memory_attach(regclass, text, text, text, text) is
'Stores the rows of a table as memories, now and after each change, and returns the number of rows stored now. content, metadata and tenant are SQL expressions over the columns. Errors: 22004, 22023, 42501, 42601, 42703, 42710, 42804, 42809, 42P01, 42P16, 55P03.
Example: SELECT memory_attach(''public.ticket'', ''subject || '''': '''' || body'', metadata => ''jsonb_build_object(''''priority'''', priority)'');';

create function _mindful.attachment_tenant_insert(relation regclass, row_tenant text) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.attachment_tenant (relation, row_tenant)
    select a.relation, attachment_tenant_insert.row_tenant
    from mindful.attachment a
    where a.tenant = (select _mindful.tenant()) and a.relation = attachment_tenant_insert.relation and a.row_tenant is not null
    on conflict do nothing;
end;
comment on function _mindful.attachment_tenant_insert(regclass, text) is
'Records that an attached table with an expression for the tenant has had rows of a tenant.';

create function _mindful.attachment_clear(relation regclass, source text) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    own text := _mindful.tenant();
    outer_tenant text := _mindful.tenant_switch(own);
    tenants text[] := own || array(
        select t.row_tenant from mindful.attachment_tenant t
        where t.tenant = own and t.relation = attachment_clear.relation and t.row_tenant <> own
    );
    row_tenant text;
    deleted bigint := 0;
begin
    foreach row_tenant in array tenants loop
        perform _mindful.tenant_switch(row_tenant);
        deleted := deleted + coalesce(_mindful.memory_delete(array(
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.source = attachment_clear.source for update
        )), 0);
    end loop;
    perform _mindful.tenant_switch(outer_tenant);
    return deleted;
end
$$;
comment on function _mindful.attachment_clear(regclass, text) is
'Deletes all memories of an attached table, of every tenant that has had some, and returns their number.';

create function memory_detach(relation regclass) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $$
declare
    remember regprocedure := (
        select t.tgfoid from pg_trigger t where t.tgrelid = relation and t.tgname = 'remember_inserted'
    );
    event text;
    attached_as text;
    deleted bigint;
begin
    perform _mindful.writable();
    select a.source into attached_as from mindful.attachment a
    where a.tenant = _mindful.tenant() and a.relation = memory_detach.relation
    for update;
    if not found then
        perform _mindful.raise('42704', format('%s is not attached', coalesce(relation::text, 'null')),
            'The tables that you attached are listed in mindful.attachment.');
    end if;
    deleted := _mindful.attachment_clear(relation, attached_as);
    perform _mindful.delete('attachment', jsonb_build_array(jsonb_build_object('relation', relation::oid::text)));
    if remember is not null then
        foreach event in array array['inserted', 'updated', 'deleted', 'truncated'] loop
            execute format('drop trigger remember_%s on %s', event, relation);
        end loop;
    end if;
    execute format('drop function if exists %s', coalesce(remember::text,
        format('%I.%I()', (parse_ident(attached_as))[1], 'remember_' || md5(attached_as))));
    return deleted;
end
$$;
comment on function memory_detach(regclass) is
'Detaches a table: removes its triggers, deletes its memories and returns their number. Error 42704: it is not attached.
Example, which works for a dropped table too: SELECT memory_detach(relation) FROM mindful.attachment WHERE source = ''public.ticket'';';
