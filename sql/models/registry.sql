create table model (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,39}$'),
    kind text not null check (kind in ('generator', 'embedder', 'reranker')),
    provider text not null,
    source text not null,
    options jsonb not null default '{}' check (jsonb_typeof(options) = 'object'),
    sha256 text not null,
    context_length integer check (context_length > 0),
    dims integer check (dims between 1 and 2000),
    license text,
    fallback text references model,
    is_default boolean not null default false,
    granted_to text[] not null default '{mindful_user}',
    registered_by text not null default current_user,
    created_at timestamptz not null default now(),
    base text references model,
    check ((kind = 'embedder') = (dims is not null)),
    constraint model_base check (base is null or kind = 'generator')
);
create index model_base on model (base) where base is not null;
create unique index on model (kind) where is_default;
-- Two names that differ only in punctuation would get the same table of embeddings.
create unique index on model (translate(name, '.-', '__'));

comment on table model is 'Registered models (generators, embedders, rerankers) and the roles that may use them.';
comment on column model.source is
'Absolute path of a GGUF file or a sentence-transformers folder on the server. For the provider openai, the address of the server that runs the model.';
comment on column model.options is
'Options of the provider: context_length (tokens), threads (default 1) and repack (default false). An embedder may also have vector_type. A generator may also have system_prompt, layout, example, acknowledge, template, stop, prompt_lookup, dry_multiplier and flash_attention. The reference describes them under model.';
comment on column model.base is 'The generator that an adapter changes; NULL for models that are not adapters.';
comment on column model.sha256 is 'SHA-256 of the file, or of the folder''s weights, at registration.';
comment on column model.dims is 'Number of dimensions of an embedder''s vectors.';

alter table model enable row level security, force row level security;
create policy administer on model to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model', '');

create function _mindful.embedding_table(model text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select 'memory_embedding_' || pg_catalog.translate(model, '.-', '__');
end;
comment on function _mindful.embedding_table(text) is 'Returns the name of the table that holds an embedder''s vectors.';

create function _mindful.embedding_index(model text, tenant text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select 'embedding_' || pg_catalog.left(pg_catalog.md5(model || ' ' || tenant), 16);
end;
comment on function _mindful.embedding_index(text, text) is 'Returns the name of a tenant''s HNSW index over an embedder''s vectors.';

create function model_register(
    name text,
    kind text,
    provider text,
    source text,
    options jsonb default '{}',
    granted_to text[] default '{mindful_user}'
) returns text
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.registry import model_register
return model_register(name, kind, provider, source, options, granted_to)
$python$;
comment on function model_register(text, text, text, text, jsonb, text[]) is
'Registers a model, loads its files once to check them, and returns its name. For administrators. The first model of a kind becomes its default. kind is generator, embedder or reranker. Errors: 08006, 08P01, 0A000, 22004, 22023, 42501, 42710, 55P03, 58P01, XX001. Example: select model_register(''gemma'', ''generator'', ''llama_cpp'', ''/srv/models/gemma.gguf'', ''{"context_length": 4096}'');';

create function model_default_set(name text, force boolean default false, scope text default 'global') returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
    found_memories bigint;
    found_missing bigint;
begin
    perform _mindful.writable();
    if scope is null or scope not in ('global', 'user') then
        perform _mindful.raise('22023', format('scope is %s', coalesce(quote_literal(scope), 'null')),
            'Use global for the default of all tenants or user for your own.');
    elsif scope = 'global' and not pg_has_role(current_user, 'mindful_admin', 'usage') then
        perform _mindful.raise('42501', 'role ' || current_user || ' cannot set the default of all tenants',
            'Use scope => ''user'' to set your own default generator. Only members of mindful_admin may use scope global.');
    end if;
    select * into chosen from mindful.model m where m.name = model_default_set.name;
    if not found then
        raise exception using errcode = '42704', message = format('mindful: there is no model "%s"', name),
            hint = 'The table mindful.model lists the models that you may use.';
    elsif scope = 'user' then
        perform _mindful.default_generator_set(name);
        return;
    end if;
    if chosen.trained_on > 0 then
        perform _mindful.adapter_consents_check(name);
        if chosen.granted_to = '{}' then
            perform _mindful.raise('55000', format('adapter "%s" serves only the tenants whose texts it was trained on', name),
                format('Use mindful.adapter_share(%L, ''{mindful_user}'') first.', name));
        end if;
    end if;
    if chosen.kind = 'embedder' and not chosen.is_default and force is not true then
        select memories, missing into found_memories, found_missing from _mindful.embedding_missing(name);
        -- Up to 1% may be missing: memories that were stored while the embedder was filled. They are enqueued below.
        if found_missing * 100 > found_memories then
            perform _mindful.raise('55000',
                format('%s of %s memories have no embedding by %s yet', found_missing, found_memories, name),
                format('Call embedding_enqueue(%L), run a worker, and check embedding_status; or pass force => true.', name));
        end if;
    end if;
    update mindful.model m set is_default = false where m.kind = chosen.kind and m.is_default;
    update mindful.model m set is_default = true where m.name = chosen.name;
    if chosen.kind = 'embedder' then
        perform mindful.embedding_enqueue(name);
    end if;
end
$$;
comment on function model_default_set(text, boolean, text) is
'Makes a model the default of its kind. scope global: for all tenants, by administrators; user: for the caller''s tenant. An embedder must have embedded 99% of all memories, unless force is true. Errors: 22023, 42501 (scope global), 42704 (no such model), 55000 (not ready, or no consent). Example: select model_default_set(''gemma'', scope => ''user'');';

create function _mindful.model_lock(name text) returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    vectors regclass := to_regclass('mindful.' || quote_ident(_mindful.embedding_table(name)));
begin
    -- The row's lock is among them: rows of open transactions refer to it, and it must not wait with the tables locked.
    perform _mindful.lock_briefly(format('model "%s"', name),
        case when vectors is null then '' else format('lock table mindful.memory, %s in access exclusive mode; ', vectors) end
            || format('select from mindful.model m where m.name = %L for update', name));
end
$$;
comment on function _mindful.model_lock(text) is
'Locks a model''s row, and what is locked when its vector table is dropped. It runs with the owner''s rights, because administrators do not own the tables. Error 55P03: other transactions use them.';

create function _mindful.model_deleted() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set client_min_messages = warning
as $$
begin
    if old.kind = 'embedder' then
        perform _mindful.model_lock(old.name);
        execute format('drop table if exists mindful.%I', _mindful.embedding_table(old.name));
    end if;
    delete from mindful.kv_state k where k.model = old.name;
    return null;
end
$$;
comment on function _mindful.model_deleted() is
'Drops the vector table of a deleted embedder, and deletes a generator''s cached states (kv_state) of all tenants. It runs with the owner''s rights, because administrators neither own the table nor see the states.';
create trigger model_deleted after delete on model for each row execute function _mindful.model_deleted();

create function _mindful.model_unused(name text) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
    dependents text;
begin
    select m.* into chosen from mindful.model m where m.name = model_unused.name;
    if not found then
        perform _mindful.raise('42704', format('there is no model %s', coalesce(quote_literal(name), 'null')),
            'The table mindful.model lists the models.');
    elsif chosen.is_default then
        perform _mindful.raise('55000', format('model "%s" is the default %s', name, chosen.kind),
            'Make another model the default with mindful.model_default_set first.');
    end if;
    select string_agg(quote_ident(m.name), ', ' order by m.name) into dependents
    from mindful.model m where m.fallback = model_unused.name and m.name <> model_unused.name;
    if dependents is not null then
        perform _mindful.raise('55000', format('model "%s" is the fallback of %s', name, dependents),
            'Call mindful.model_fallback_set(name, fallback) first, with another fallback or NULL.');
    end if;
    select string_agg(quote_ident(m.name), ', ' order by m.name) into dependents
    from mindful.model m where m.base = model_unused.name;
    if dependents is not null then
        perform _mindful.raise('55000', format('model "%s" is the base of %s', name, dependents),
            'Unregister these adapters first.');
    end if;
end
$$;
comment on function _mindful.model_unused(text) is
'Raises 42704 if there is no such model, and 55000 if it is a default, or the fallback or base of another model.';

create function model_unregister(name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    -- The lock stops all tenants, so a call that would be refused takes none.
    perform _mindful.model_unused(name);
    perform _mindful.model_lock(name);
    perform _mindful.model_unused(name);
    delete from mindful.model m where m.name = model_unregister.name;
    perform mindful.model_unload(name);
end
$$;
comment on function model_unregister(text) is
'Removes a model from the registry, with an embedder''s vectors and a generator''s cached states; its files stay. For administrators. Errors: 42501, 42704 (no such model), 55000 (it is a default, or the fallback or base of another model), 55P03 (open transactions use it). Example: select model_unregister(''old-embedder'');';

create function model_fallback_set(name text, fallback text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    given text;
    found_kind text;
begin
    perform _mindful.writable();
    -- Two concurrent calls could together make a cycle that neither of them sees.
    perform _mindful.lock_briefly('the registry of models', 'lock table mindful.model in share row exclusive mode');
    foreach given in array array[name, fallback] loop
        continue when given is null and fallback is null and name is not null;
        select m.kind into found_kind from mindful.model m where m.name = given;
        if not found then
            perform _mindful.raise('42704', format('there is no model %s', coalesce(quote_literal(given), 'null')),
                'The table mindful.model lists the models.');
        elsif found_kind <> 'generator' then
            perform _mindful.raise('22023', format('model "%s" is of kind %s', given, found_kind),
                'Both model and fallback must be generators.');
        end if;
    end loop;
    if exists (
        with recursive chain (name) as (
            select model_fallback_set.fallback
            union
            select m.fallback from chain c join mindful.model m on m.name = c.name where m.fallback is not null
        )
        select from chain c where c.name = model_fallback_set.name
    ) then
        perform _mindful.raise('22023', format('fallback "%s" leads back to model "%s"', fallback, name),
            'Pass a model whose chain of fallbacks does not contain this one, or NULL.');
    end if;
    update mindful.model m set fallback = model_fallback_set.fallback where m.name = model_fallback_set.name;
end
$$;
comment on function model_fallback_set(text, text) is
'Sets a generator''s fallback: the generator that is used when it is not confident of its answer. NULL removes it. For administrators. Errors: 22023 (not a generator, or a cycle of fallbacks), 42501, 42704 (no such model), 55P03. Example: select model_fallback_set(''smollm2-135m-instruct'', ''gemma'');';

create function model_serve(name text, server text default null, when_down text default 'embedded') returns void
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.registry import model_serve
return model_serve(name, server, when_down)
$python$;
comment on function model_serve(text, text, text) is
'Has a server of llama.cpp run a model''s file for all connections. With NULL each connection runs it again. For administrators. Errors: 08006 and 08P01 (the server), 22004, 22023, 42501, 42704 (no such model). Example: SELECT mindful.model_serve(''smollm2-135m-instruct'', ''unix:/run/mindful/smollm2-135m-instruct.sock'');';

create function model_unload(name text default null) returns integer
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.registry import model_unload
return model_unload(name)
$python$;
comment on function model_unload(text) is
'Frees the memory of a model that this connection has loaded, or of all (NULL), and returns their number. The next use loads the model again.';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_keep', 'boolean', null, null, '{global,user}', 'true',
        'Whether a connection keeps its loaded models when a transaction ends. false: it frees their memory and loads them again at the next use.');
