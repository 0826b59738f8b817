-- Traces of deleted memories.

create function _mindful.forget_hash(salt text, content text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.encode(
        pg_catalog.sha256(pg_catalog.convert_to(salt || pg_catalog.lower(_mindful.squeeze(content)), 'UTF8')), 'hex');
end;
comment on function _mindful.forget_hash(text, text) is 'SHA-256 of a salt and a text, whose case and white space do not matter.';

create function _mindful.runs(content text, language text) returns table (run text, is_longest boolean)
language sql stable parallel safe security invoker rows 50
begin atomic
    with word as (
        select t.lexeme, pg_catalog.row_number() over (order by p.position, t.lexeme) as n, pg_catalog.count(*) over () as words
        from pg_catalog.unnest(pg_catalog.to_tsvector(_mindful.language(language), content)) t,
            pg_catalog.unnest(t.positions) p (position)
    ),
    start as (
        select w.n, w.words,
            pg_catalog.string_agg(w.lexeme, ' ') over (order by w.n rows between current row and 1 following) as two,
            pg_catalog.string_agg(w.lexeme, ' ') over (order by w.n rows between current row and 2 following) as three,
            pg_catalog.string_agg(w.lexeme, ' ') over (order by w.n rows between current row and 3 following) as four
        from word w
    )
    select distinct r.run, r.length = least(s.words, 4)
    from start s, lateral (values (2, s.two), (3, s.three), (4, s.four)) r (length, run)
    where s.n + r.length - 1 <= s.words;
end;
comment on function _mindful.runs(text, text) is
'Two, three and four lexemes of a text that follow one another; is_longest are those of four, or of as many as there are. A text that holds a longest run of another repeats its words.';

create function _mindful.tenant_columns() returns table (relation oid, name text, column_name text, type oid, number smallint, key text)
language sql stable parallel safe security invoker
begin atomic
    select c.oid, c.relname, a.attname, a.atttypid, a.attnum,
        (
            select pg_catalog.format('pg_catalog.jsonb_build_object(%s)', pg_catalog.string_agg(
                pg_catalog.format('%L, t.%I', k.attname, k.attname), ', ' order by k.attnum))
            from pg_catalog.pg_index i
            join pg_catalog.pg_attribute k on k.attrelid = c.oid and k.attname <> 'tenant'
            where i.indrelid = c.oid and i.indisprimary
                and k.attnum = any ((i.indkey::smallint[])[0:i.indnkeyatts - 1])
        )
    from pg_catalog.pg_class c
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attname <> 'tenant'
    where c.relnamespace = 'mindful'::pg_catalog.regnamespace and c.relkind = 'r'
        and c.relname <> all (array['forget_receipt', 'api_key', 'api_key_use'])  -- these hold nothing of a memory
        and exists (
            select from pg_catalog.pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant' and not t.attisdropped
        );
end;
comment on function _mindful.tenant_columns() is
'The columns of all tables that hold tenants'' rows, and the expression that gives the key of a row t.';

create function _mindful.text_columns() returns table (relation text, column_name text, key text)
language sql stable parallel safe security invoker
begin atomic
    select c.name, c.column_name, c.key
    from _mindful.tenant_columns() c
    where c.type = any (array['text', 'text[]', 'jsonb']::pg_catalog.regtype[])
        and c.name <> 'memory_term' and c.column_name <> 'content_hash';
end;
comment on function _mindful.text_columns() is
'Returns the columns that can contain text of memories.';

create function _mindful.reference_columns() returns table (relation text, column_name text, key text, condition text)
language sql stable parallel safe security invoker
begin atomic
    select c.name, c.column_name, c.key,
        case c.type
            when 'bigint[]'::pg_catalog.regtype then pg_catalog.format('t.%I && $2', c.column_name)
            when 'jsonb'::pg_catalog.regtype then
                't.metadata ->> ''reply_to'' = any ($3) or exists (select from _mindful.memory_ids(t.metadata) s where s.id = any ($3))'
            else pg_catalog.format('t.%I = any ($2)', c.column_name)
        end
    from _mindful.tenant_columns() c
    where c.name = 'memory' and c.column_name in ('id', 'metadata')
        or c.name = 'memory_term' and c.column_name = 'id'
        or c.type = 'bigint[]'::pg_catalog.regtype and c.column_name like '%memory\_ids'
        or exists (
            select from pg_catalog.pg_constraint f
            where f.conrelid = c.relation and f.contype = 'f' and f.confrelid = 'mindful.memory'::pg_catalog.regclass
                and c.number = any (f.conkey)
        );
end;
comment on function _mindful.reference_columns() is
'The columns that name memories, and the condition that a row t names one of some ids, as bigint[] ($2) and as text[] ($3).';

create type forget_finding as (relation text, column_name text, key jsonb, finding text);
comment on type forget_finding is
'A row with a trace of a deleted memory.';

create function _mindful.memory_holding(runs text[]) returns bigint[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    return array(
        with word as materialized (
            select distinct r.run, w.lexeme from unnest(runs) r (run), string_to_table(r.run, ' ') w (lexeme)
        ),
        holder as materialized (
            select jsonb_object_agg(w.lexeme, t.holders) as holders
            from (select distinct lexeme from word) w
            cross join lateral (
                select count(*) as holders
                from (
                    select from mindful.memory_term t
                    where t.tenant = (select _mindful.tenant()) and t.lexeme = w.lexeme limit 1000
                ) t
            ) t
        ),
        run as materialized (
            select array_agg(w.lexeme order by w.holders, w.lexeme) as lexemes
            from (select w.run, w.lexeme, ((select h.holders from holder h) -> w.lexeme)::integer as holders from word w) w
            group by w.run
            having min(w.holders) > 0
        )
        select distinct p.id
        from run r
        cross join lateral (
            select t.id from mindful.memory_term t
            where t.tenant = (select _mindful.tenant()) and t.lexeme = r.lexemes[1]
            offset 0
        ) p
        where not exists (
            select from unnest(r.lexemes[2:]) l (lexeme)
            where not exists (
                select from mindful.memory_term t
                where t.tenant = (select _mindful.tenant()) and t.lexeme = l.lexeme and t.id = p.id
            )
        )
    );
end
$$;
comment on function _mindful.memory_holding(text[]) is
'The memories that hold all lexemes of one of the runs, wherever they stand: by look-ups in memory_term, the rarest lexeme first.';

create function _mindful.forget_mentions(runs text[], copies text[], salt text, language text) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    place record;
    candidates bigint[];
    words text[];
    mentions jsonb;
    found_rows jsonb;
begin
    select coalesce(jsonb_agg(jsonb_build_object('relation', 'memory', 'column', 'content', 'key', jsonb_build_object('id', m.id),
        'hash', _mindful.forget_hash(salt, m.content))), '[]')
    into mentions
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.content_hash = any (copies);
    if cardinality(runs) = 0 then
        return mentions;
    end if;
    -- memory_term has the lexemes of the present language only.
    candidates := _mindful.memory_holding(runs) || array(
        select m.id from mindful.memory m where m.tenant = (select _mindful.tenant()) and m.language <> forget_mentions.language
    );
    words := array(select distinct w.lexeme from unnest(runs) r (run), string_to_table(r.run, ' ') w (lexeme));
    for place in select c.relation, c.column_name, c.key from _mindful.text_columns() c loop
        execute format($query$
            select coalesce(jsonb_agg(jsonb_build_object('relation', %1$L, 'column', %2$L, 'key', %3$s,
                'hash', _mindful.forget_hash($3, t.%2$I::text))), '[]')
            from mindful.%1$I t
            where t.tenant = $1 and %4$s t.%2$I::text ~ '[^[:alnum:]]'  -- two words at least, and one of those
                and exists (select from unnest(to_tsvector($7, t.%2$I::text)) l where l.lexeme = any ($5))
                and exists (select from _mindful.runs(t.%2$I::text, $8) r where r.run = any ($2))
            $query$, place.relation, place.column_name, place.key,
            case when (place.relation, place.column_name) = ('memory', 'content') then 't.id = any ($4) and t.content_hash <> all ($6) and ' else '' end)
        into found_rows using _mindful.tenant(), runs, salt, candidates, words, copies, _mindful.language(language), language;
        mentions := mentions || found_rows;
    end loop;
    return mentions;
end
$$;
comment on function _mindful.forget_mentions(text[], text[], text, text) is
'The memories whose text has one of some hashes, and the rows, in any table, whose words hold one of the runs, with a salted hash of the text.';

create function memory_forget_check(receipt_id bigint default null, ids bigint[] default null) returns setof forget_finding
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    receipt mindful.forget_receipt;
    place record;
    mention jsonb;
begin
    if num_nonnulls(receipt_id, ids) <> 1 then
        perform _mindful.raise('22023', 'memory_forget_check needs exactly one of receipt_id and ids', 'Pass one of them.');
    elsif ids is null then
        select r.* into receipt from mindful.forget_receipt r
        where r.tenant = (select _mindful.tenant()) and r.id = receipt_id;
        if not found then
            perform _mindful.raise('42704', format('there is no receipt %s', receipt_id), 'The receipts of your tenant are in mindful.forget_receipt.');
        end if;
        ids := receipt.memory_ids;
    end if;
    for place in select c.relation, c.column_name, c.key, c.condition from _mindful.reference_columns() c loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'reference' from mindful.%1$I t where t.tenant = $1 and (%4$s)
            $query$, place.relation, place.column_name, place.key, place.condition)
        using _mindful.tenant(), ids, ids::text[];
    end loop;
    for place in select c.relation, c.column_name, c.key from _mindful.text_columns() c where receipt.hashes <> '{}' loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'copy' from mindful.%1$I t
            where t.tenant = $1 and _mindful.forget_hash($2, t.%2$I::text) = any ($3)
            $query$, place.relation, place.column_name, place.key)
        using _mindful.tenant(), receipt.salt, receipt.hashes;
    end loop;
    for place in
        select c.relation, c.column_name, c.key, jsonb_agg(m) as mentions
        from jsonb_array_elements(receipt.mentions) m
        join _mindful.text_columns() c on c.relation = m ->> 'relation' and c.column_name = m ->> 'column'
        group by c.relation, c.column_name, c.key
    loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'mention'
            from mindful.%1$I t
            join jsonb_array_elements($2) m on m -> 'key' = %3$s
            where t.tenant = $1 and m ->> 'hash' = _mindful.forget_hash($3, t.%2$I::text)
            $query$, place.relation, place.column_name, place.key)
        using _mindful.tenant(), place.mentions, receipt.salt;
    end loop;
end
$$;
comment on function memory_forget_check(bigint, bigint[]) is
'Searches all tables for traces of deleted memories, by a receipt or by ids. No row means that nothing is left. finding is reference, copy or mention.
Example: SELECT * FROM memory_forget_check(receipt_id => 3);
Errors: 22023 (both or neither argument), 42704 (the tenant has no such receipt).';
