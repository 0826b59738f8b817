create function _mindful.vector(embedding text) returns vector
language sql immutable strict parallel safe security invoker
begin atomic
    select embedding::vector;
end;
comment on function _mindful.vector(text) is 'A vector from its text, wherever the extension vector is installed.';

-- Bound when they are made. Where a role may create objects beside pgvector, a query would take its <=> (halfvec, vector).
-- Both are inlined, so an index gives their order.
create function _mindful.distance(embedding vector, query vector) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select embedding <=> query;
end;
comment on function _mindful.distance(vector, vector) is 'Returns the cosine distance of an embedding and the vector of a query.';

create function _mindful.distance(embedding halfvec, query vector) returns double precision
language sql immutable parallel safe security invoker
begin atomic
    select embedding <=> query::halfvec;
end;
comment on function _mindful.distance(halfvec, vector) is
'Returns the cosine distance of an embedding and the vector of a query, in half precision.';

create function _mindful.embedding_table_create(model text, dims integer) returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $$
declare
    relation text := _mindful.embedding_table(model);
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    vector_type text := (
        select case m.options ->> 'vector_type' when 'halfvec' then 'halfvec' else 'vector' end from mindful.model m
        where m.name = embedding_table_create.model and m.kind = 'embedder' and m.dims = embedding_table_create.dims
    );
begin
    if vector_type is null then
        perform _mindful.raise('42704', format('there is no embedder %L of %s dimensions', model, dims),
            'Register it with mindful.model_register(name, ''embedder'', provider, source).');
    end if;
    -- A dropped extension leaves its embedding tables, which are no members of it, without what tied them to memory.
    if exists (select from pg_constraint c
        where c.conrelid = to_regclass(format('mindful.%I', relation)) and c.confrelid = 'mindful.memory'::regclass)
    then
        perform _mindful.raise('42710', format('there is a table %s already', relation), 'It holds another model''s vectors.');
    end if;
    perform _mindful.lock_briefly('the memories', 'lock table mindful.memory in share row exclusive mode');
    execute format('drop table if exists mindful.%I', relation);
    execute format('create table mindful.%I (
        tenant text not null default _mindful.tenant(),
        id bigint not null,
        embedding %s.%s(%s) not null,
        content_hash text not null,
        primary key (tenant, id))', relation, vector_schema, vector_type, dims);
    execute format('alter table mindful.%I add foreign key (tenant, id) references mindful.memory on delete cascade', relation);
    execute format('alter table mindful.%I enable row level security, force row level security', relation);
    execute format('create policy own on mindful.%I using (tenant = (select _mindful.tenant()))
        with check (tenant = (select _mindful.tenant_claimed()))', relation);
    execute format('grant select, insert on mindful.%I to mindful_user', relation);
    perform _mindful.update_grant(format('mindful.%I', relation));
    execute format('comment on table mindful.%I is %L', relation, 'Embeddings of memories by the model ' || model || '.');
    perform _mindful.statistics_remove();
end
$$;
comment on function _mindful.embedding_table_create(text, integer) is
'Creates the table for a registered embedder''s vectors. The extension''s owner owns it, because the role that registers the model could lift row-level security. Error 42704: no such embedder.';

create function _mindful.memory_embed() returns trigger
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.memory.embedding import memory_embed
return memory_embed()
$python$;
comment on function _mindful.memory_embed() is 'Embeds the new and changed rows of a statement in one batch.';
