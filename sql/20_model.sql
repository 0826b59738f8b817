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
    base text references model,
    check ((kind = 'embedder') = (dims is not null)),
    constraint model_base check (base is null or kind = 'generator')
);
create index model_base on model (base) where base is not null;
create unique index on model (kind) where is_default;
-- Names that differ in punctuation alone would share an embedding table.
create unique index on model (translate(name, '.-', '__'));

comment on table model is 'Registered models: generators and embedders, and who may use them.';
comment on column model.source is 'Absolute path, on the server, of a GGUF file or a sentence-transformers folder.';
comment on column model.options is 'Options of the provider: context_length, threads (default 1), and of a generator also system_prompt, layout, a text with {memories} and {message} that says how recalled memories stand with a message, template, a Jinja chat template in place of the file''s, stop, texts that end every answer, and prompt_lookup (default 0, at most 32): how many tokens are guessed at once, at temperature 0, where an answer repeats what stands before; it changes no answer, and is faster where texts are copied (15 is a good choice).';
comment on column model.base is 'The generator that this one, an adapter, changes; NULL for a model in its own right.';
comment on column model.sha256 is 'Hash of the file, or of the folder''s weights, when the model was registered.';
comment on column model.dims is 'Length of an embedder''s vectors.';

alter table model enable row level security, force row level security;
create policy administer on model to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model', '');

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

create function model_default_set(name text, force boolean default false, scope text default 'global') returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
    found_memories bigint;
    found_missing bigint;
begin
    perform mindful._writable();
    if scope is null or scope not in ('global', 'user') then
        perform mindful._raise('22023', format('scope is %s', coalesce(quote_literal(scope), 'null')),
            'Scopes are global, the default of all tenants, and user, your own.');
    elsif scope = 'global' and not pg_has_role(current_user, 'mindful_admin', 'usage') then
        perform mindful._raise('42501', 'only members of mindful_admin set the default of all tenants',
            'Use scope => ''user'' for your own default generator.');
    end if;
    select * into chosen from mindful.model m where m.name = model_default_set.name;
    if not found then
        raise exception using errcode = '42704', message = format('mindful: there is no model "%s"', name),
            hint = 'The models that you may use are listed in mindful.model.';
    elsif scope = 'user' then
        perform mindful._default_generator_set(name);
        return;
    end if;
    if chosen.trained_on > 0 then
        perform mindful._adapter_consents_check(name);
        if chosen.granted_to = '{}' then
            perform mindful._raise('55000', format('adapter "%s" serves only the tenants whose texts it was trained on', name),
                format('Use mindful.adapter_share(%L, ''{mindful_user}'') first.', name));
        end if;
    end if;
    if chosen.kind = 'embedder' and not chosen.is_default and force is not true then
        select memories, missing into found_memories, found_missing from mindful._embedding_missing(name);
        -- Those written while it was being filled are too few to be missed, and come soon.
        if found_missing * 100 > found_memories then
            perform mindful._raise('55000',
                format('%s of %s memories have no embedding by %s yet', found_missing, found_memories, name),
                format('SELECT embedding_sweep(%L), let a worker run, and see embedding_status; or give force => true.', name));
        end if;
    end if;
    update mindful.model m set is_default = false where m.kind = chosen.kind and m.is_default;
    update mindful.model m set is_default = true where m.name = chosen.name;
    if chosen.kind = 'embedder' then
        perform mindful.embedding_sweep(name);
    end if;
end
$$;
comment on function model_default_set(text, boolean, text) is
'Makes a model the default of its kind. Scope global (an administrator''s) is for all tenants that may use it; scope user sets the caller''s own default generator, which comes first. A tenant that may not use the global default is served by its base. An adapter that was trained on tenants'' texts becomes the global default only after adapter_share. An embedder is filled first: embedding_sweep(name) enqueues all memories, and workers embed them beside the old one, which serves meanwhile; once it has embedded 99% of them it can become the default, and the rest is enqueued. With force it becomes the default at once, and recall finds only what it has embedded. Errors: 22023 (scope, not a generator), 42501 (global is for mindful_admin), 42704 (no such model), 55000 (memories are not embedded yet; a tenant whose texts are in the adapter has not consented; the adapter was withdrawn).';

create function model_unload(name text default null) returns integer
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.model import model_unload
return model_unload(name)
$python$;
comment on function model_unload(text) is
'Gives back the memory of a model, or of all (NULL), that this connection has loaded, and returns how many there were. The next use loads it again.';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_keep', 'boolean', null, null, '{global,user}', 'true',
        'Whether a connection keeps the models that it has loaded when a transaction ends; where not, it gives their memory back then, and loads them again when it needs them.');
