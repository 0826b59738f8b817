create type document_change as (
    chunks integer,
    inserted integer,
    replaced integer,
    kept integer,
    deleted integer
);
comment on type document_change is
'Numbers of chunks of a document after a change: all of it (chunks), new ones, those with another text under the same key, unchanged ones, and deleted ones of the version before.';

create function _mindful.document_source(source text) returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.text_argument('source', source);
    if octet_length(source) > 1024 then
        perform _mindful.raise('54000', format('source has %s bytes, more than 1024', octet_length(source)),
            'Name the document by a file''s path, a URL or a title.');
    elsif exists (select from mindful.attachment a where a.tenant = _mindful.tenant() and a.source = document_source.source)
        or exists (
            select from mindful.memory m
            where m.tenant = _mindful.tenant() and m.source = document_source.source
                and not (m.kind = 'document' and m.metadata ? 'chunk')
        )
    then
        perform _mindful.raise('42710', format('source %L is already used by memories that are not documents', source),
            'Give the document another source: an attached table, or memory_insert, has taken this one.');
    end if;
    return source;
end
$$;
comment on function _mindful.document_source(text) is 'Returns a source that a document can have, or raises 22004, 22023, 42710 or 54000.';

create function _mindful.document_write(
    source text,
    title text,
    metadata jsonb,
    keys text[],
    contents text[],
    places text[]
) returns document_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    found record;
    deleted integer;
    shared jsonb := _mindful.metadata(document_write.metadata) || jsonb_strip_nulls(jsonb_build_object('title', title));
begin
    perform _mindful.document_source(document_write.source);
    -- Two versions of a document that come at the same time come one after the other.
    perform _mindful.lock('document ' || md5(document_write.source));
    select count(*) as chunks, count(*) filter (where m.id is null) as inserted,
        count(*) filter (where m.content <> n.content) as replaced, count(*) filter (where m.content = n.content) as kept
    into found
    from rows from (unnest(keys), unnest(contents)) n (key, content)
    left join mindful.memory m on m.tenant = (select _mindful.tenant()) and m.source = document_write.source
        and m.source_key = n.key;
    insert into mindful.memory as m (kind, content, metadata, source, source_key)
    select 'document', n.content, shared || n.place::jsonb, document_write.source, n.key
    from rows from (unnest(keys), unnest(contents), unnest(places)) with ordinality n (key, content, place, number)
    order by n.number
    on conflict (tenant, source, source_key) where source is not null do update set content = excluded.content, metadata = excluded.metadata
        where m.content <> excluded.content or m.metadata <> excluded.metadata;
    deleted := _mindful.memory_delete(array(
        select m.id from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.source = document_write.source
            and not exists (select from unnest(keys) k (key) where k.key = m.source_key)
    ));
    return (found.chunks, found.inserted, found.replaced, found.kept, deleted)::mindful.document_change;
end
$$;
comment on function _mindful.document_write(text, text, jsonb, text[], text[], text[]) is
'Makes a document''s chunks those that are given: new ones are added, those whose text or place is another updated, the others deleted. Places are JSON objects that say where a chunk stands.';

create function document_insert(
    content text,
    source text,
    title text default null,
    format text default 'auto',
    metadata jsonb default '{}',
    max_tokens integer default null,
    overlap integer default null
) returns document_change
language plpython3u volatile parallel unsafe security invoker cost 10000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.memory.document import document_insert
return document_insert(content, source, title, format, metadata, max_tokens, overlap)
$python$;
comment on function document_insert(text, text, text, text, jsonb, integer, integer) is
'Stores a document as chunks (memories of kind document), and returns their number and what changed. If the source exists, chunks with the same text stay, new ones are added, and the others are deleted. Errors: 22004, 22023, 42710 (source of other memories), 54000 (content over 16 MB). Example: select * from document_insert(''notes.md'', ''# Tea'' || chr(10) || ''Ana likes tea.'');';

create function document_insert_parts(source text, parts jsonb, title text default null, metadata jsonb default '{}')
returns document_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    keys text[];
    contents text[];
    places text[];
    repeated text;
begin
    perform _mindful.writable(), _mindful.short_argument('source', source), _mindful.short_argument('title', title);
    select array_agg(p.key order by p.number), array_agg(p.content order by p.number),
        array_agg((p.metadata || jsonb_build_object('chunk', p.number, 'chunks', p.parts))::text order by p.number)
    into keys, contents, places
    from (
        select e.number, count(*) over () as parts,
            _mindful.part_key(e.element ->> 'key', e.number) as key,
            _mindful.text_argument(format('content of element %s', e.number), e.element ->> 'content') as content,
            _mindful.metadata(e.element -> 'metadata')
                || jsonb_strip_nulls(jsonb_build_object('heading', e.element ->> 'heading')) as metadata
        from _mindful.array_elements('parts', parts, '{key,content,heading,metadata}') e
    ) p;
    if keys is null then
        perform _mindful.raise('22023', 'parts is empty', 'Give at least one; document_delete forgets a document.');
    end if;
    select k.key into repeated from unnest(keys) k (key) group by k.key having count(*) > 1 limit 1;
    if found then
        perform _mindful.raise('22023', format('parts have the key %L more than once', repeated), 'Give each part a key of its own.');
    end if;
    return _mindful.document_write(source, title, metadata, keys, contents, places);
end
$$;
comment on function document_insert_parts(text, jsonb, text, jsonb) is
'Stores a document in parts that the caller made, such as the operations of an API, and returns what document_insert does. Errors: 22004, 22023 (element or repeated key), 42710 (source of other memories), 54000.
Example: SELECT * FROM document_insert_parts(''api'', ''[{"key": "GET /users", "content": "Lists users."}]'');';

create function _mindful.part_key(key text, number bigint) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.octet_length(key) > 1024
            then _mindful.raise('54000', pg_catalog.format('key of element %s has %s bytes, more than 1024', number,
                pg_catalog.octet_length(key)), 'Give it a shorter one.')::text
        else _mindful.text_argument(pg_catalog.format('key of element %s', number), key)
    end;
end;
comment on function _mindful.part_key(text, bigint) is 'Returns a key that a part of a document can have, or raises 22004, 22023 or 54000.';

create function document_delete(source text) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chunks bigint[] := array(
        select m.id from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.source = document_delete.source and m.kind = 'document'
            and m.metadata ? 'chunk'
    );
begin
    perform _mindful.writable();
    if chunks = '{}' then
        perform _mindful.raise('42704', format('there is no document %s', coalesce(quote_literal(source), 'null')),
            'Your documents are listed in mindful.document.');
    end if;
    perform _mindful.lock('forget');
    perform _mindful.forget(_mindful.forget_reach(chunks), '{}', 'document', false);
    return cardinality(chunks);
end
$$;
comment on function document_delete(text) is
'Deletes a document with the memories drawn from it alone, and returns the number of its chunks.
It writes a receipt, but does not search for mentions; memory_forget(filter => ''{"source": "..."}'') does. Error 42704: the tenant has no such document.';

create view document with (security_invoker = true) as
select m.tenant, m.source, min(m.metadata ->> 'title') as title, count(*) as chunks,
    sum(octet_length(m.content)) as bytes, min(m.created_at) as created_at, max(m.created_at) as updated_at,
    min(m.metadata ->> 'fingerprint') as fingerprint
from mindful.memory m
where m.kind = 'document' and m.metadata ? 'chunk'
group by m.tenant, m.source;
comment on view document is
'The caller''s documents. Bytes count what chunks share twice; updated_at is when its newest chunk came; fingerprint is what metadata named so at the last insert, by which a reader of files knows which have changed.';

create function document_list(source text default null)
returns table (source text, title text, chunks bigint, bytes bigint, created_at timestamptz, updated_at timestamptz, fingerprint text)
language sql stable parallel safe security invoker
begin atomic
    select d.source, d.title, d.chunks, d.bytes, d.created_at, d.updated_at, d.fingerprint
    from mindful.document d
    where d.tenant = (select _mindful.tenant()) and (document_list.source is null or d.source = document_list.source)
    order by d.source;
end;
comment on function document_list(text) is
'Returns the tenant''s documents by source (NULL: all), as in the view document.';
