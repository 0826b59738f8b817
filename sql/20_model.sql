create table model (
    name text primary key check (name ~ '^[a-z0-9][a-z0-9_.-]{0,39}$'),
    kind text not null check (kind in ('generator', 'embedder', 'reranker')),
    provider text not null,
    source text not null,
    options jsonb not null default '{}' check (jsonb_typeof(options) = 'object'),
    sha256 text not null,
    context_length integer check (context_length > 0),
    dims integer check (dims between 1 and 2000),
    licence text,
    fallback text references model,
    is_default boolean not null default false,
    granted_to text[] not null default '{mindful_user}',
    registered_by text not null default current_user,
    created_at timestamptz not null default now(),
    check ((kind = 'embedder') = (dims is not null))
);
create unique index on model (kind) where is_default;
-- Names that differ in punctuation alone would share an embedding table.
create unique index on model (translate(name, '.-', '__'));

comment on table model is 'Registered models: generators and embedders, and who may use them.';
comment on column model.source is 'Absolute path, on the server, of a GGUF file or a sentence-transformers folder.';
comment on column model.options is 'Options of the provider: context_length, threads (default 1), and of a generator also system_prompt and layout, a text with {memories} and {message} that says how recalled memories stand with a message, template, a Jinja chat template in place of the file''s, and stop, texts that end every answer.';
comment on column model.sha256 is 'Hash of the file, or of the folder''s weights, when the model was registered.';
comment on column model.dims is 'Length of an embedder''s vectors.';
comment on column model.granted_to is 'Roles whose members see and use the model.';

alter table model enable row level security;
alter table model force row level security;
create policy use on model for select using (
    exists (
        select from pg_catalog.unnest(granted_to || '{mindful_admin}'::text[]) r (name)
        where pg_catalog.pg_has_role(pg_catalog.to_regrole(pg_catalog.quote_ident(r.name))::oid, 'usage')
    )
);
create policy administer on model to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model', '');

create function _model_find(kind text, name text)
returns table (name text, kind text, provider text, source text, sha256 text, options jsonb)
language sql stable parallel safe security invoker
begin atomic
    select m.name, m.kind, m.provider, m.source, m.sha256, m.options
    from mindful.model m
    where m.kind = _model_find.kind
        and (m.name = _model_find.name or _model_find.name is null and m.is_default);
end;
comment on function _model_find(text, text) is 'The named model, or the default one of its kind, if the caller may use it.';

create function _embedding_table(model text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select 'memory_embedding_' || pg_catalog.translate(model, '.-', '__');
end;
comment on function _embedding_table(text) is 'Name of the table that holds an embedder''s vectors.';

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
from mindful.model import model_register
return model_register(name, kind, provider, source, options, granted_to)
$python$;
comment on function model_register(text, text, text, text, jsonb, text[]) is
'Loads a model''s files once to check them, and enters it in the registry; the first of its kind becomes the default. For administrators (mindful_admin). Kinds: generator, embedder. Providers: llama_cpp (a GGUF file), sentence_transformers (a folder), scripted (answers given in the options, for tests). The source is an absolute path on the server. An embedder gets a table for its vectors. Errors: 22004, 22023 (bad argument), 42710 (name taken), 58P01 (no such file), XX001 (file damaged), 0A000 (provider''s package not installed).';

create function model_default_set(name text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
begin
    select * into chosen from mindful.model m where m.name = model_default_set.name;
    if not found then
        raise exception using errcode = '42704', message = format('mindful: there is no model "%s"', name),
            hint = 'The models that you may use are listed in mindful.model.';
    end if;
    update mindful.model m set is_default = false where m.kind = chosen.kind and m.is_default;
    update mindful.model m set is_default = true where m.name = chosen.name;
end
$$;
comment on function model_default_set(text) is
'Makes a model the default of its kind, for all who may use it. For administrators. Memories keep the embeddings of the embedder that was the default when they were written; UPDATE mindful.memory SET content = content gives a tenant''s own those of the new one. Error 42704: no such model.';

create function model_unload(name text default null) returns integer
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.model import model_unload
return model_unload(name)
$python$;
comment on function model_unload(text) is
'Gives back the memory of a model, or of all (NULL), that this connection has loaded, and returns how many there were. The next use loads it again.';

