\echo Use "ALTER EXTENSION mindful UPDATE TO '0.2.0'" to load this file. \quit

create table setting_definition (
    key text primary key,
    type text not null check (type in ('integer', 'number', 'boolean', 'text')),
    low double precision,
    high double precision,
    scopes text[] not null check (scopes <@ array['global', 'user', 'session']),
    initial jsonb not null,
    description text not null,
    choices text[]
);
comment on table setting_definition is 'What can be set: type, range, where, and the value where nobody has set it.';
comment on column setting_definition.choices is 'The values that a text can have; NULL for any.';
alter table setting_definition enable row level security;
alter table setting_definition force row level security;
create policy read on setting_definition for select using (true);

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_slots', 'integer', 0, 1024, '{global}', '0',
        'How many connections may run a model at once; 0 is one for each processor core.'),
    ('model_slot_wait_ms', 'integer', 1, 3600000, '{global,user}', '60000',
        'How long a call waits for a slot, in milliseconds, before it fails with 55P03.'),
    ('generation_log', 'boolean', null, null, '{global,user}', 'true',
        'Whether calls of generators are recorded in the table generation.');

create table setting (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    scope text not null check (scope in ('global', 'user', 'session')),
    session_id uuid,
    key text not null references setting_definition,
    value jsonb not null,
    reason text,
    changed_by text not null default current_user,
    changed_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    check ((scope = 'session') = (session_id is not null)),
    check ((scope = 'global') = (tenant = ''))
);
create index on setting (tenant, key, scope, session_id, id);
comment on table setting is 'Every change of a setting; the newest of its scope is in force. Value null takes the scope''s setting back.';
comment on column setting.tenant is 'Whose setting it is; empty for those of scope global.';
alter table setting enable row level security;
alter table setting force row level security;
create policy own on setting using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
create policy read_global on setting for select using (tenant = '');
create policy write_global on setting for insert to mindful_admin with check (tenant = '');
select pg_catalog.pg_extension_config_dump('mindful.setting', '');
select pg_catalog.pg_extension_config_dump('mindful.setting_id_seq', '');

create function setting_get(key text, session_id uuid default null) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select coalesce(
        (
            select s.value
            from (
                select distinct on (c.scope) c.scope, c.value
                from mindful.setting c
                where c.key = setting_get.key
                    and c.tenant = any (array['', (select mindful._tenant())])
                    and (c.scope <> 'session' or c.session_id = setting_get.session_id)
                order by c.scope, c.id desc
            ) s
            where s.value <> 'null'
            order by pg_catalog.array_position(array['session', 'user', 'global'], s.scope)
            limit 1
        ),
        (select d.initial from mindful.setting_definition d where d.key = setting_get.key)
    );
end;
comment on function setting_get(text, uuid) is
'The value in force: the session''s, else the caller''s own, else the global one, else the initial one. NULL where there is no such setting.';

create function _setting_check(key text, value jsonb, scope text) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    defined mindful.setting_definition;
    found_type text := jsonb_typeof(value);
begin
    select d.* into defined from mindful.setting_definition d where d.key = _setting_check.key;
    if not found then
        perform mindful._raise('42704', format('there is no setting %s', coalesce(quote_literal(key), 'null')),
            'Settings are listed in mindful.setting_definition.');
    elsif scope is null or scope <> all (defined.scopes) then
        perform mindful._raise('22023', format('setting %s has no scope %s', key, coalesce(quote_literal(scope), 'null')),
            format('Its scopes are %s.', array_to_string(defined.scopes, ', ')));
    elsif value is null or found_type = 'null' then
        return 'null';
    elsif found_type <> (case defined.type when 'integer' then 'number' when 'text' then 'string' else defined.type end)
        or defined.type = 'integer' and (value #>> '{}')::numeric % 1 <> 0
    then
        perform mindful._raise('22023', format('setting %s is %s', key, value), format('It must be of type %s.', defined.type));
    elsif found_type = 'number' and not (value #>> '{}')::numeric between defined.low and defined.high then
        perform mindful._raise('22023', format('setting %s is %s', key, value),
            format('It must be between %s and %s.', defined.low, defined.high));
    elsif value #>> '{}' <> all (defined.choices) then
        perform mindful._raise('22023', format('setting %s is %s', key, value),
            format('It must be %s.', array_to_string(defined.choices, ', ')));
    end if;
    return value;
end
$$;
comment on function _setting_check(text, jsonb, text) is 'Returns a value that the setting can have, or raises 42704 or 22023.';

create function setting_set(
    key text,
    value jsonb,
    scope text default 'user',
    session_id uuid default null,
    reason text default null
) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    value := mindful._setting_check(key, value, scope);
    insert into mindful.setting (tenant, scope, session_id, key, value, reason)
    values (case scope when 'global' then '' else mindful._tenant() end, scope, session_id, key, value, reason);
    return mindful.setting_get(key, session_id);
end
$$;
comment on function setting_set(text, jsonb, text, uuid, text) is
'Sets a value for all (scope global, for administrators), for the caller (user) or for one session, and returns the value now in force; a JSON null takes the scope''s setting back. Every change is kept, with who made it, when and why. Errors: 42704 (no such setting), 22023 (wrong type, range or scope), 42501 (global is for mindful_admin).';

create view active_setting with (security_invoker = true) as
select d.key, mindful.setting_get(d.key) as value, d.initial, d.type, d.low, d.high, d.scopes, d.description, d.choices
from mindful.setting_definition d;
comment on view active_setting is 'The settings in force for the caller, outside any session''s own.';

-- Advisory locks, because the server frees them whatever becomes of a connection, queues waiters in order, and lets
-- them sleep. The class is this number; the slots are 1 .. n.
create function _slot_class() returns integer
language sql immutable parallel safe security invoker
begin atomic
    select 1835626093;
end;
comment on function _slot_class() is 'The class of the advisory locks that are slots for running a model ("mind" in ASCII).';

create function _slot_take(cores integer) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = 0
as $$
declare
    slots integer := coalesce(nullif((mindful.setting_get('model_slots') #>> '{}')::integer, 0), cores);
    -- Waiters spread over the slots by process number.
    slot integer := 1 + pg_backend_pid() % slots;
    wait_ms text := mindful.setting_get('model_slot_wait_ms') #>> '{}';
begin
    for candidate in 1 .. slots loop
        if pg_try_advisory_lock(mindful._slot_class(), candidate) then
            return candidate;
        end if;
    end loop;
    perform set_config('lock_timeout', wait_ms, true);
    perform pg_advisory_lock(mindful._slot_class(), slot);
    return slot;
exception when lock_not_available then
    raise exception using errcode = '55P03',
        message = format('mindful: all %s slots for running a model were busy for %s ms', slots, wait_ms),
        hint = 'Try again; or have an administrator raise the settings model_slots or model_slot_wait_ms.';
end
$$;
comment on function _slot_take(integer) is
'Takes one of the slots for running a model, as many as the setting model_slots says or else there are cores, waiting in line as long as the setting model_slot_wait_ms allows; error 55P03 then.';

alter table generation add column slot_wait_ms real not null default 0;
comment on column generation.slot_wait_ms is 'How long the call waited for a slot (see the setting model_slots), before and while it ran.';

create function _summary_add(state text[], content text) returns text[]
language sql immutable parallel restricted security invoker
begin atomic
    select case when content is null then state else pg_catalog.array_append(state, content) end;
end;
comment on function _summary_add(text[], text) is 'Collects the texts of llm_summarize, without NULLs.';

create function _summary(state text[]) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.summary import summary
return summary(state)
$python$;
comment on function _summary(text[]) is 'Summarizes the collected texts with the default generator.';

create aggregate llm_summarize(content text) (
    sfunc = _summary_add,
    stype = text[],
    initcond = '{}',
    finalfunc = _summary,
    parallel = unsafe
);
comment on aggregate llm_summarize(text) is
'Summarizes texts, in the order that ORDER BY within the call gives, with the default generator. What does not fit its context at once is summarized in parts, and the summaries in turn, until one is left. NULLs and empty texts are left out; no text gives NULL. Errors: 55000 (no default generator), 57014 (cancelled), 55P03 (no free slot).';

create type label_detail as (label text, probability real, probabilities jsonb);
comment on type label_detail is 'The label that fits a text best, its probability, and those of all labels.';

create function llm_classify(
    content text,
    labels text[],
    instruction text default null,
    model text default null,
    subtract_prior boolean default true
) returns text
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.label import llm_classify
return llm_classify(content, labels, instruction, model, subtract_prior)
$python$;
comment on function llm_classify(text, text[], text, text, boolean) is
'Chooses the label that fits a text best with a generator (NULL: the default one), without generating: a label''s score is the mean log-probability (nats) of its tokens, its end included, as what completes a form with the instruction, the labels and the text; softmax over the labels gives probabilities. With subtract_prior each label''s score for an empty text is subtracted first (contextual calibration, Zhao et al. 2021), so that a label gains nothing by being common. The instruction says what the labels are about, such as "What is the sentiment of the text?". The text is read as one line. NULL gives NULL. For many rows llm_classify_many is faster. Errors: 22004 (labels null), 22023 (no label, more than 255, one twice, empty text), 42704 (no such model), 54000 (text longer than the model''s context).';

create function llm_classify_many(
    contents text[],
    labels text[],
    instruction text default null,
    model text default null,
    subtract_prior boolean default true
) returns setof label_detail
language plpython3u stable parallel restricted security invoker cost 1000000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.label import llm_classify_many
return llm_classify_many(contents, labels, instruction, model, subtract_prior)
$python$;
comment on function llm_classify_many(text[], text[], text, text, boolean) is
'As llm_classify for many texts in shared batches: one row a text, in their order, with the label, its probability, and the probabilities of all labels, which add up to 1, by label. NULL gives a row of NULLs. A NULL array gives no rows. Errors as llm_classify.';

create function llm_if(content text, condition text, model text default null) returns boolean
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.label import llm_if
return llm_if(content, condition, model)
$python$;
comment on function llm_if(text, text, text) is
'Tells whether a statement, such as "The writer is pleased.", is true of a text, by the scores of the labels true and false with their priors subtracted; see llm_classify. NULL where the text or the condition is NULL. Errors: 22023 (empty text or condition), 42704 (no such model), 54000 (text longer than the model''s context).';

create function llm_generate_many(
    prompts text[],
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns text[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.batch import llm_generate_many
return llm_generate_many(prompts, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate_many(text[], text, integer, real, integer, text, text[], boolean, jsonb, text) is
'As llm_generate for many prompts, evaluated side by side, which makes more tokens a second than one call after the other; what the prompts begin with alike is evaluated once. The answers stand in the order of the prompts, NULL for NULL; a NULL array gives NULL. The n-th prompt is sampled with the seed plus n - 1. Answers can differ from those of single calls where two tokens are all but equally likely, as sums are rounded in another order. Nothing is returned before the last answer is complete. Errors as llm_generate; the message says which prompt it is about.';

-- A cache: UNLOGGED, so a crash empties it and standbys never see it, and no part of a dump. Parts are only added while
-- a conversation goes on, never rewritten, so little of it is ever dead; what is dead, is large.
create unlogged table kv_state (
    tenant text not null default _tenant(),
    session_id uuid not null,
    model text not null,
    first integer not null check (first >= 0),
    fingerprint text not null,
    tokens integer[] not null,
    state bytea not null,
    mac bytea not null,
    used_at timestamptz not null default clock_timestamp(),
    primary key (tenant, session_id, model, first),
    foreign key (tenant, session_id) references session on delete cascade
) with (
    autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- Halves of floats: pglz finds nothing in them.
alter table kv_state alter column state set storage external;

comment on table kv_state is 'What generators computed of conversations, part by part, so that any connection goes on without evaluating them again. A cache: deleting rows costs time, never an answer.';
comment on column kv_state.first is 'Position in the prompt of the part''s first token, from 0.';
comment on column kv_state.fingerprint is 'Hash of all that the state depends on beside the tokens: the model''s file, its context''s settings, llama.cpp.';
comment on column kv_state.tokens is 'The tokens of this part, which a prompt must have at this position.';
comment on column kv_state.state is 'Keys and values of the tokens, as llama.cpp writes and reads them.';
comment on column kv_state.mac is 'HMAC-SHA256 of the row by a key that only the server''s processes have: llama.cpp trusts the bytes it is given, so nothing else may be given to it.';
comment on column kv_state.used_at is 'When the conversation last added this part; the conversation whose newest part is oldest leaves first.';

alter table kv_state enable row level security;
alter table kv_state force row level security;
create policy own on kv_state using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));

create function _kv_state_limits(out enabled boolean, out tenant_bytes bigint, out total_bytes bigint)
language sql immutable parallel safe security invoker
begin atomic
    select true, 256 * 1048576::bigint, 1024 * 1048576::bigint;
end;
comment on function _kv_state_limits() is
'Whether states of conversations are kept, and how many bytes of them for a tenant and for all.';

create function _kv_state_parts(session_id uuid, model text, fingerprint text)
returns table (first integer, tokens integer[])
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    -- A standby cannot so much as plan a query on an unlogged table.
    if not pg_is_in_recovery() and (select l.enabled from mindful._kv_state_limits() l) then
        return query
        select k.first, k.tokens
        from mindful.kv_state k
        where k.tenant = (select mindful._tenant()) and k.session_id = _kv_state_parts.session_id
            and k.model = _kv_state_parts.model and k.fingerprint = _kv_state_parts.fingerprint
        order by k.first;
    end if;
end
$$;
comment on function _kv_state_parts(uuid, text, text) is 'Which tokens of a conversation a state is kept of, part by part; none on a standby.';

create function _kv_state_read(session_id uuid, model text, first integer)
returns table (tenant text, state bytea, mac bytea)
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select k.tenant, k.state, k.mac
    from mindful.kv_state k
    where k.tenant = (select mindful._tenant()) and k.session_id = _kv_state_read.session_id
        and k.model = _kv_state_read.model and k.first = _kv_state_read.first;
end
$$;
comment on function _kv_state_read(uuid, text, integer) is 'The state of one part of a conversation, and whose it is.';

create function _kv_state_write(
    session_id uuid,
    model text,
    first integer,
    fingerprint text,
    tokens integer[],
    state bytea,
    mac bytea
) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
begin
    delete from mindful.kv_state k
    where k.tenant = (select mindful._tenant()) and k.session_id = _kv_state_write.session_id
        and k.model = _kv_state_write.model
        and (k.first >= _kv_state_write.first or k.fingerprint <> _kv_state_write.fingerprint);
    insert into mindful.kv_state (session_id, model, first, fingerprint, tokens, state, mac)
    values (_kv_state_write.session_id, _kv_state_write.model, _kv_state_write.first,
        _kv_state_write.fingerprint, _kv_state_write.tokens, _kv_state_write.state, _kv_state_write.mac);
    perform mindful._kv_state_evict();
    return true;
exception
    -- A full disk or a lock's time-out must not cost the reply. A cancel is not among `others`.
    when others then
        raise warning using message = format('mindful: the state of session %s is not kept: %s', session_id, sqlerrm),
            hint = 'The conversation goes on, more slowly on its next connection.';
        return false;
end
$$;
comment on function _kv_state_write(uuid, text, integer, text, integer[], bytea, bytea) is
'Keeps the state of one part of a conversation in place of all from its position on, evicts what exceeds the limits, and tells whether it did; a failure is a warning.';

create function _kv_state_evict() returns bigint
language sql volatile parallel unsafe security definer
begin atomic
    with conversation as (
        select k.tenant, k.session_id, k.model, pg_catalog.max(k.used_at) as used_at,
            pg_catalog.sum(pg_catalog.octet_length(k.state)) as bytes
        from mindful.kv_state k
        group by k.tenant, k.session_id, k.model
    ),
    running as (
        select c.*,
            pg_catalog.sum(c.bytes) over (partition by c.tenant order by c.used_at desc, c.session_id, c.model) as tenant_bytes,
            pg_catalog.sum(c.bytes) over (order by c.used_at desc, c.tenant, c.session_id, c.model) as total_bytes
        from conversation c
    ),
    -- Rows that a running transaction adds to or removes are its business.
    evicted as (
        select k.tenant, k.session_id, k.model, k.first
        from running r
        cross join mindful._kv_state_limits() l
        join mindful.kv_state k on k.tenant = r.tenant and k.session_id = r.session_id and k.model = r.model
        where r.tenant_bytes > l.tenant_bytes or r.total_bytes > l.total_bytes
        for update of k skip locked
    ),
    deleted as (
        delete from mindful.kv_state k
        using evicted e
        where k.tenant = e.tenant and k.session_id = e.session_id and k.model = e.model and k.first = e.first
        returning 1
    )
    select pg_catalog.count(*) from deleted;
end;
comment on function _kv_state_evict() is
'Deletes the states of the conversations that were used longest ago, as far as those of a tenant or of all exceed their limits, and returns the number of parts. It runs with the rights of the extension''s owner, as the limit of all concerns every tenant, and whoever calls it can reach no more than the limits ask for.';

create function _session_shown_from(session_id uuid, model text) returns integer
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(m.metadata -> 'shown_from') = 'number'
            and (m.metadata -> 'shown_from')::numeric between 1 and 2147483647
            then (m.metadata -> 'shown_from')::integer
    end
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _session_shown_from.session_id
        and m.role = 'assistant' and m.metadata ->> 'model' = _session_shown_from.model
    order by m.turn desc
    limit 1;
end;
comment on function _session_shown_from(uuid, text) is
'The first turn that a model was shown for its last reply in a session; NULL if that is not known.';
create function llm_extract(
    content text,
    json_schema jsonb,
    instruction text default null,
    model text default null,
    max_tokens integer default 512
) returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.structure import llm_extract
return llm_extract(content, json_schema, instruction, model, max_tokens)
$python$;
comment on function llm_extract(text, jsonb, text, text, integer) is
'Draws JSON that fits a JSON schema (draft 2020-12) from a text with a generator (NULL: the default one), which is held to the schema token by token; the result is validated, so it fits or there is an error. The instruction says what to look for. NULL content gives NULL. Members that the schema does not name are not made; pattern, patternProperties, $id and references to elsewhere are not supported; uniqueItems, multipleOf, not and the like are only checked in the end. Errors: 22004 (no schema), 22023 (bad schema, one that nothing fits, empty text), 22000 (the answer does not fit after all), 54000 (not complete after max_tokens, or text longer than the model''s context), 42704 (no such model), 55P03 (no free slot), 57014 (cancelled).';

revoke execute on function
    _kv_state_limits(),
    _kv_state_parts(uuid, text, text),
    _kv_state_read(uuid, text, integer),
    _kv_state_write(uuid, text, integer, text, integer[], bytea, bytea),
    _kv_state_evict(),
    _session_shown_from(uuid, text),
    llm_classify(text, text[], text, text, boolean),
    llm_classify_many(text[], text[], text, text, boolean),
    llm_if(text, text, text),
    llm_extract(text, jsonb, text, text, integer),
    llm_generate_many(text[], text, integer, real, integer, text, text[], boolean, jsonb, text),
    setting_get(text, uuid),
    setting_set(text, jsonb, text, uuid, text),
    _setting_check(text, jsonb, text),
    _slot_class(),
    _slot_take(integer),
    _summary_add(text[], text),
    _summary(text[]),
    llm_summarize(text)
from public;
grant execute on function
    _kv_state_limits(),
    _kv_state_parts(uuid, text, text),
    _kv_state_read(uuid, text, integer),
    _kv_state_write(uuid, text, integer, text, integer[], bytea, bytea),
    _kv_state_evict(),
    _session_shown_from(uuid, text),
    llm_classify(text, text[], text, text, boolean),
    llm_classify_many(text[], text[], text, text, boolean),
    llm_if(text, text, text),
    llm_extract(text, jsonb, text, text, integer),
    llm_generate_many(text[], text, integer, real, integer, text, text[], boolean, jsonb, text),
    setting_get(text, uuid),
    setting_set(text, jsonb, text, uuid, text),
    _setting_check(text, jsonb, text),
    _slot_class(),
    _slot_take(integer),
    _summary_add(text[], text),
    _summary(text[]),
    llm_summarize(text)
to mindful_user;
grant execute on function
    setting_get(text, uuid),
    setting_set(text, jsonb, text, uuid, text),
    _setting_check(text, jsonb, text)
to mindful_admin;
grant select on setting_definition, setting, active_setting to mindful_user, mindful_admin;
grant insert on setting to mindful_user, mindful_admin;
grant select, insert, delete on kv_state to mindful_user;

alter table memory
    add column importance real not null default 0.5 check (importance between 0 and 1),
    add column confidence real check (confidence between 0 and 1),
    add column level text not null default 'data' check (level in ('data', 'information', 'knowledge', 'wisdom')),
    add column valid_from timestamptz,
    add column valid_to timestamptz,
    add column superseded_by bigint,
    add constraint memory_validity check (valid_from <= valid_to),
    add constraint memory_superseded_by foreign key (tenant, superseded_by) references memory (tenant, id)
        on delete set null (superseded_by);
create index memory_superseded_by on memory (tenant, superseded_by) where superseded_by is not null;
comment on column memory.importance is 'From 0 to 1; what is known of no memory is 0.5.';
comment on column memory.confidence is 'Probability that it is true; NULL if nobody has said.';
comment on column memory.valid_from is 'Since when it is true; NULL is since ever.';
comment on column memory.valid_to is 'Until when it was true; NULL is until now.';
comment on column memory.superseded_by is 'The memory that took its place.';

-- Kept apart from memory: what is recalled often is not rewritten as often.
create table memory_access (
    tenant text not null default _tenant(),
    id bigint not null,
    access_count bigint not null default 1 check (access_count > 0),
    last_accessed_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, id) references memory on delete cascade
);
comment on table memory_access is 'How often a memory was shown to a model or marked as used, and when last.';

create table memory_link (
    tenant text not null default _tenant(),
    source_id bigint not null,
    target_id bigint not null,
    relation text not null check (relation ~ '^[a-z][a-z0-9_]{0,62}$'),
    weight real not null default 1 check (weight between 0 and 1),
    created_at timestamptz not null default now(),
    primary key (tenant, source_id, target_id, relation),
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, target_id) references memory (tenant, id) on delete cascade,
    check (source_id <> target_id)
);
create index on memory_link (tenant, source_id, weight desc);
create index on memory_link (tenant, target_id, weight desc);
comment on table memory_link is 'What one memory has to do with another.';

create table memory_evidence (
    tenant text not null default _tenant(),
    id bigint not null,
    source_id bigint not null,
    quote text not null check (quote <> '' and octet_length(quote) <= 2000),
    created_at timestamptz not null default now(),
    primary key (tenant, id, source_id, quote),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    check (id <> source_id)
);
create index on memory_evidence (tenant, source_id);
comment on table memory_evidence is 'What a memory rests on: the memories it was drawn from, and the words that say so.';

do $do$
declare
    relation text;
begin
    foreach relation in array array['memory_access', 'memory_link', 'memory_evidence'] loop
        execute pg_catalog.format('alter table mindful.%I enable row level security', relation);
        execute pg_catalog.format('alter table mindful.%I force row level security', relation);
        execute pg_catalog.format($$create policy own on mindful.%I using (tenant = (select mindful._tenant()))
            with check (tenant = (select mindful._tenant()))$$, relation);
        perform pg_catalog.pg_extension_config_dump('mindful.' || relation, '');
    end loop;
end
$do$;
grant select, insert, update, delete on memory_access, memory_link, memory_evidence to mindful_user;

-- job
drop trigger embed_inserted on memory;
drop trigger embed_updated on memory;
alter table attachment drop constraint attachment_mode_check;
alter table attachment add constraint attachment_mode_check check (mode in ('sync', 'async'));
comment on column attachment.mode is 'Whether rows are embedded within the statement that writes them (sync) or later, by a worker (async).';
drop function model_default_set(text);
create function model_default_set(name text, force boolean default false) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.model;
    found_memories bigint;
    found_missing bigint;
begin
    select * into chosen from mindful.model m where m.name = model_default_set.name;
    if not found then
        raise exception using errcode = '42704', message = format('mindful: there is no model "%s"', name),
            hint = 'The models that you may use are listed in mindful.model.';
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
comment on function model_default_set(text, boolean) is
'Makes a model the default of its kind, for all who may use it. For administrators. An embedder is filled first: embedding_sweep(name) enqueues all memories, and workers embed them beside the old one, which serves meanwhile; once it has embedded 99% of them it can become the default, and the rest is enqueued. With force it becomes the default at once, and recall finds only what it has embedded. Errors: 42704 (no such model), 55000 (memories are not embedded yet).';

create or replace function memory_attach(relation regclass, content text, mode text default 'sync') returns bigint
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
    key text;
    body text;
    event text;
    keys text[];
    contents text[];
    outer_mode text := coalesce(current_setting('mindful.embedding_mode', true), '');
    remembered bigint;
begin
    perform mindful._text_argument('content', content);
    -- Tables that were dropped while they were attached.
    for full_name in
        delete from mindful.attachment a
        where a.tenant = mindful._tenant() and not exists (select from pg_class c where c.oid = a.relation)
        returning a.source
    loop
        perform mindful._attachment_delete(full_name, null);
        execute format('drop function if exists %I.%I()', (parse_ident(full_name))[1], 'remember_' || md5(full_name));
    end loop;
    full_name := mindful._relation_name(relation);
    if relation is null then
        perform mindful._raise('22004', 'relation is null', 'Name a table.');
    elsif target.relkind <> 'r' then
        perform mindful._raise('42809', format('%s is not an ordinary table', full_name),
            'Attach the tables or partitions that hold its rows.');
    elsif schema_name = 'mindful' then
        perform mindful._raise('42809', format('%s belongs to mindful', full_name), 'Attach a table of an application.');
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
        $body$, mindful._tenant(), full_name, key, content, mode);
    -- The last five: a row's key must read the same in every session.
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

create function _memory_tenants() returns setof text
language sql stable parallel safe security invoker
begin atomic
    with recursive found as (
        (select m.tenant from mindful.memory m order by m.tenant limit 1)
        union all
        select (select m.tenant from mindful.memory m where m.tenant > f.tenant order by m.tenant limit 1)
        from found f
        where f.tenant is not null
    )
    select f.tenant from found f where f.tenant is not null;
end;
comment on function _memory_tenants() is 'The tenants of the memories that the caller reaches, found one by one through the index.';

create function _embedder(model text) returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_name text := (select f.name from mindful._model_find('embedder', model) f);
begin
    if found_name is null and model is null then
        perform mindful._raise('55000', 'there is no default embedder',
            'Register one with mindful.model_register(name, ''embedder'', provider, source).');
    elsif found_name is null then
        perform mindful._raise('42704', format('there is no embedder %L', model),
            'The models that you may use are listed in mindful.model.');
    end if;
    return found_name;
end
$$;
comment on function _embedder(text) is 'The name of an embedder, the default one for NULL, or raises 55000 or 42704.';

create function _embedding_sweep(model text) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '1s'
as $$
declare
    embedder text := mindful._embedder(model);
    swept_tenant text;
    enqueued bigint;
    total bigint := 0;
begin
    for swept_tenant in select t from mindful._memory_tenants() t loop
        begin
            delete from mindful.embedding_job_failed f
            using mindful.memory m
            where f.tenant = swept_tenant and m.tenant = f.tenant and m.id = f.id and m.content_hash <> f.content_hash;
            execute format('
                insert into mindful.embedding_job (tenant, id, model, content_hash)
                select m.tenant, m.id, $1, m.content_hash
                from mindful.memory m
                where m.tenant = $2
                    and not exists (select from mindful.%I e
                        where e.tenant = $2 and e.id = m.id and e.content_hash = m.content_hash)
                    and not exists (select from mindful.embedding_job_failed f
                        where f.tenant = $2 and f.id = m.id and f.model = $1 and f.content_hash = m.content_hash)
                on conflict do nothing', mindful._embedding_table(embedder)) using embedder, swept_tenant;
            get diagnostics enqueued = row_count;
            total := total + enqueued;
        exception when lock_not_available then
            -- Who holds rows of his own keeps nobody else's from being found.
            continue;
        end;
    end loop;
    if total > 0 then
        notify mindful_job;
    end if;
    return total;
end
$$;
comment on function _embedding_sweep(text) is 'embedding_sweep for the memories that the caller reaches.';

create function _embedding_sweep_all(model text) returns bigint
language sql volatile parallel unsafe security definer
begin atomic
    select mindful._embedding_sweep(model);
end;
comment on function _embedding_sweep_all(text) is 'embedding_sweep for the memories of all tenants.';

create function embedding_sweep(model text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return mindful._embedding_sweep_all(model);
    end if;
    return mindful._embedding_sweep(model);
end
$$;
comment on function embedding_sweep(text) is
'Enqueues the memories that have no embedding by an embedder (NULL: the default one), or one of an earlier text, and returns how many were new to the queue: the caller''s own, or an administrator''s call those of all tenants. So it finds what was restored, replicated, written with row_security off or before there was an embedder, and it fills a new embedder beside the one in use. Dead letters are left alone: see job_retry. Errors: 42704 (no such embedder), 55000 (no default embedder).';

create function _embedding_missing(model text) returns table (memories bigint, missing bigint)
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return query execute format('
        select count(*), count(*) - count(e.id)
        from mindful.memory m
        left join mindful.%I e on e.tenant = m.tenant and e.id = m.id and e.content_hash = m.content_hash',
        mindful._embedding_table(model));
end
$$;
comment on function _embedding_missing(text) is 'How many memories all tenants have, and how many of them an embedder has not embedded as they are.';

create function _embedding_count() returns table (
    tenant text,
    model text,
    embedded bigint,
    missing bigint,
    stale bigint,
    queued bigint,
    failed bigint,
    oldest_wait interval
)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    embedder text;
begin
    for embedder in select m.name from mindful.model m where m.kind = 'embedder' order by m.name loop
        return query execute format('
            with counted as (
                select m.tenant, count(*) filter (where e.content_hash = m.content_hash) as embedded,
                    count(*) filter (where e.id is null) as missing,
                    count(*) filter (where e.content_hash <> m.content_hash) as stale
                from mindful.memory m
                left join mindful.%I e on e.tenant = m.tenant and e.id = m.id
                group by m.tenant
            ),
            waiting as (
                select j.tenant, count(*) as queued, min(j.enqueued_at) as since
                from mindful.embedding_job j where j.model = $1 group by j.tenant
            ),
            dead as (
                select f.tenant, count(*) as failed
                from mindful.embedding_job_failed f where f.model = $1 group by f.tenant
            )
            select c.tenant, $1, c.embedded, c.missing, c.stale, coalesce(w.queued, 0), coalesce(d.failed, 0),
                clock_timestamp() - w.since
            from counted c left join waiting w on w.tenant = c.tenant left join dead d on d.tenant = c.tenant',
            mindful._embedding_table(embedder)) using embedder;
    end loop;
end
$$;
comment on function _embedding_count() is 'The rows of embedding_status for the memories that the caller reaches.';

create function _embedding_count_all() returns table (
    tenant text,
    model text,
    embedded bigint,
    missing bigint,
    stale bigint,
    queued bigint,
    failed bigint,
    oldest_wait interval
)
language sql stable parallel safe security definer
begin atomic
    select * from mindful._embedding_count();
end;
comment on function _embedding_count_all() is 'The rows of embedding_status for the memories of all tenants.';

create function _embedding_status() returns table (
    tenant text,
    model text,
    embedded bigint,
    missing bigint,
    stale bigint,
    queued bigint,
    failed bigint,
    oldest_wait interval
)
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if mindful._reads_all() then
        return query select * from mindful._embedding_count_all();
    else
        return query select * from mindful._embedding_count();
    end if;
end
$$;
comment on function _embedding_status() is 'The rows of embedding_status.';

create view embedding_status with (security_invoker = true) as
select s.tenant, s.model, s.embedded, s.missing, s.stale, s.queued, s.failed, s.oldest_wait
from mindful._embedding_status() s;
comment on view embedding_status is
'How far each embedder has come, by tenant: memories embedded as they are, not embedded, or embedded by an earlier text, jobs that wait and since when the oldest does, and dead letters; for oneself, or for mindful_reader for all. It counts all rows each time.';

create function embedding_compare(query text, models text[] default null, k integer default 5)
returns table (model text, rank bigint, id bigint, similarity double precision, content text)
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    embedder text;
begin
    perform mindful._text_argument('query', query), mindful._integer_argument('k', k, 1, 1000);
    for embedder in
        select mindful._embedder(n)
        from unnest(coalesce(models, array(select m.name from mindful.model m where m.kind = 'embedder' order by m.name))) n
    loop
        return query execute format('
            select $1, row_number() over (order by n.distance), n.id, 1 - n.distance, m.content
            from (
                select e.id, e.embedding operator(%1$s.<=>) $2::%1$s.vector as distance
                from mindful.%2$I e
                where e.tenant = %3$L
                order by e.embedding operator(%1$s.<=>) $2::%1$s.vector
                limit $3
            ) n
            join mindful.memory m on m.tenant = %3$L and m.id = n.id
            order by 2', vector_schema, mindful._embedding_table(embedder), mindful._tenant())
        using embedder, mindful.llm_embed(query, embedder)::text, k;
    end loop;
end
$$;
comment on function embedding_compare(text, text[], integer) is
'The k memories nearest to a query in each of the named embedders'' spaces (NULL: all that the caller may use), with rank and cosine similarity; similarities of different embedders are not on one scale. SELECT model, array_agg(content ORDER BY rank) FROM embedding_compare(''...'') GROUP BY model shows them side by side. Errors: 22004, 22023, 42704 (no such embedder).';

insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('embedding_mode', 'text', null, null, '{global,user}', '"sync"',
        'When memories are embedded: sync is within the statement that writes them, async later, by a worker.', '{sync,async}'),
    ('job_attempts', 'integer', 1, 100, '{global}', '5',
        'How often an embedding is tried before its job becomes a dead letter.', null),
    ('job_retry_s', 'integer', 0, 3600, '{global}', '10',
        'How many seconds after its first failure a job is tried again; twice as many after each further one, up to 3600.', null);

-- The text's hash is part of the key: a changed text makes a job of its own, and its writer never waits for a worker
-- that has the old one.
create table embedding_job (
    tenant text not null default _tenant(),
    id bigint not null,
    model text not null references model on delete cascade,
    content_hash text not null,
    attempts integer not null default 0 check (attempts >= 0),
    run_after timestamptz not null default now(),
    enqueued_at timestamptz not null default now(),
    last_error text,
    primary key (tenant, id, model, content_hash),
    foreign key (tenant, id) references memory on delete cascade
);
create index on embedding_job (tenant, run_after);
comment on table embedding_job is 'Memories that wait to be embedded. A worker holds a job by its row lock, which ends with the worker.';
comment on column embedding_job.content_hash is 'The text that is to be embedded; a job whose memory has another one by now is dropped.';
comment on column embedding_job.attempts is 'How often it failed. A cancelled worker is no failure.';

create table embedding_job_failed (
    tenant text not null default _tenant(),
    id bigint not null,
    model text not null references model on delete cascade,
    content_hash text not null,
    attempts integer not null,
    error text not null,
    enqueued_at timestamptz not null,
    failed_at timestamptz not null default now(),
    primary key (tenant, id, model, content_hash),
    foreign key (tenant, id) references memory on delete cascade
);
comment on table embedding_job_failed is 'Dead letters: jobs that failed as often as the setting job_attempts allows. job_retry() puts them back.';

do $do$
declare
    relation text;
begin
    foreach relation in array array['embedding_job', 'embedding_job_failed'] loop
        execute pg_catalog.format('alter table mindful.%I enable row level security', relation);
        execute pg_catalog.format('alter table mindful.%I force row level security', relation);
        -- Whoever may not use a model cannot have the server run it either.
        execute pg_catalog.format($$create policy own on mindful.%I using (tenant = (select mindful._tenant()))
            with check (tenant = (select mindful._tenant())
                and model in (select m.name from mindful.model m where m.kind = 'embedder'))$$, relation);
        perform pg_catalog.pg_extension_config_dump('mindful.' || relation, '');
    end loop;
end
$do$;

create function _embedding_mode() returns text
language sql stable parallel safe security invoker
begin atomic
    select coalesce(
        nullif(pg_catalog.current_setting('mindful.embedding_mode', true), ''),
        mindful.setting_get('embedding_mode') #>> '{}'
    );
end;
comment on function _embedding_mode() is
'When what is written now is to be embedded: as the attached table that it comes from says, else the setting embedding_mode.';

create function _memory_enqueue() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    embedder text := (select f.name from mindful._model_find('embedder', null) f);
    enqueued bigint;
begin
    if embedder is null then
        return null;
    elsif tg_level = 'ROW' then
        insert into mindful.embedding_job (tenant, id, model, content_hash)
        values (new.tenant, new.id, embedder, new.content_hash)
        on conflict do nothing;
    else
        execute format('
            insert into mindful.embedding_job (tenant, id, model, content_hash)
            select n.tenant, n.id, $1, n.content_hash
            from new_rows n
            where not exists (
                select from mindful.%I e
                where e.tenant = n.tenant and e.id = n.id and e.content_hash = n.content_hash
            )
            on conflict do nothing', mindful._embedding_table(embedder)) using embedder;
    end if;
    get diagnostics enqueued = row_count;
    if enqueued > 0 then
        notify mindful_job;
    end if;
    return null;
end
$$;
comment on function _memory_enqueue() is
'Enqueues the new and changed rows of a statement, and tells the workers that listen on the channel mindful_job.';

-- pg_dump's scripts turn row_security off: restored rows come with their embeddings.
create trigger embed_inserted after insert on memory referencing new table as new_rows for each statement
    when (pg_catalog.current_setting('row_security') = 'on' and mindful._embedding_mode() <> 'async')
    execute function _memory_embed();
create trigger embed_updated after update on memory referencing new table as new_rows for each statement
    when (pg_catalog.current_setting('row_security') = 'on' and mindful._embedding_mode() <> 'async')
    execute function _memory_embed();
create trigger enqueue_inserted after insert on memory referencing new table as new_rows for each statement
    when (pg_catalog.current_setting('row_security') = 'on' and mindful._embedding_mode() = 'async')
    execute function _memory_enqueue();
create trigger enqueue_updated after update on memory referencing new table as new_rows for each statement
    when (pg_catalog.current_setting('row_security') = 'on' and mindful._embedding_mode() = 'async')
    execute function _memory_enqueue();
-- By row, because a subscription's worker fires no other triggers.
create trigger enqueue_replicated after insert or update of content on memory for each row
    when (pg_catalog.current_setting('row_security') = 'on')
    execute function _memory_enqueue();
alter table memory disable trigger enqueue_replicated;

create function job_replica_set(enabled boolean default true) returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if enabled is null then
        perform mindful._raise('22004', 'enabled is null', 'Give true or false.');
    elsif enabled then
        alter table mindful.memory enable replica trigger enqueue_replicated;
    else
        alter table mindful.memory disable trigger enqueue_replicated;
    end if;
end
$$;
comment on function job_replica_set(boolean) is
'Says whether memories that logical replication, or a session with session_replication_role = replica, writes here are enqueued as they come; embedding_sweep() finds them in any case. No model runs in a subscription''s worker. It is off at first, and a restored dump has it off. For administrators. Error 22004: NULL.';

create function _job_take(max_jobs integer)
returns table (tenant text, id bigint, model text, content_hash text, content text)
language sql volatile parallel unsafe security invoker
begin atomic
    -- Tenants are found one by one through the index, and share a batch: nobody waits behind another's million.
    with recursive queued as (
        (select j.tenant from mindful.embedding_job j order by j.tenant limit 1)
        union all
        select (select j.tenant from mindful.embedding_job j where j.tenant > q.tenant order by j.tenant limit 1)
        from queued q
        where q.tenant is not null
    ),
    due as materialized (
        select q.tenant, greatest(1, max_jobs / pg_catalog.count(*) over ()) as share
        from queued q
        where exists (
            select from mindful.embedding_job j
            where j.tenant = q.tenant and j.run_after <= (select pg_catalog.clock_timestamp())
        )
        order by pg_catalog.random()
        limit max_jobs
    )
    select j.tenant, j.id, j.model, j.content_hash, j.content
    from due d
    cross join lateral (
        select j.tenant, j.id, j.model, j.content_hash, case when m.content_hash = j.content_hash then m.content end as content
        from mindful.embedding_job j
        join mindful.memory m on m.tenant = j.tenant and m.id = j.id
        where j.tenant = d.tenant and j.run_after <= (select pg_catalog.clock_timestamp())
        order by j.run_after
        limit d.share
        -- The memory too, though its text may change: who deletes it waits for the job's end, not across it.
        for update of j skip locked
        for key share of m skip locked
    ) j;
end;
comment on function _job_take(integer) is
'Locks jobs that are due until the transaction ends, of all tenants that the caller reaches in equal shares, and returns them with their texts; NULL is that of a memory which has another text by now.';

create function _job_store(
    model text,
    tenant text,
    ids bigint[],
    hashes text[],
    embeddings text[],
    out stored integer,
    out error text
)
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '100ms'
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
begin
    -- A memory that somebody is changing now is left out: waiting for him could end in a deadlock.
    execute format('
        with current as (
            select m.tenant, m.id, mindful._vector(k.embedding) as embedding, m.content_hash
            from rows from (unnest($2), unnest($3), unnest($4)) k (id, content_hash, embedding)
            join mindful.memory m on m.tenant = $1 and m.id = k.id and m.content_hash = k.content_hash
            for share of m skip locked
        )
        insert into mindful.%I (tenant, id, embedding, content_hash)
        select tenant, id, embedding, content_hash from current
        on conflict (tenant, id) do update set embedding = excluded.embedding, content_hash = excluded.content_hash',
        mindful._embedding_table(model)) using tenant, ids, hashes, embeddings;
    get diagnostics stored = row_count;
    perform set_config('mindful.tenant', tenant, true);  -- whose settings hold
    if mindful.setting_get('memory_duplicates') = '"join_near"'
        and model = (select f.name from mindful._model_find('embedder', null) f)
    then
        perform mindful._memory_supersede(ids);
    end if;
    perform set_config('mindful.tenant', outer_tenant, true);
exception when others then  -- which a cancel is not
    error := sqlerrm;
end
$$;
comment on function _job_store(text, text, bigint[], text[], text[]) is
'Stores embeddings of memories of one tenant, as far as they still have the texts of these hashes. Returns how many, or the error for which none is stored.';

create function _job_settle(model text, tenants text[], ids bigint[], hashes text[]) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    settled bigint;
begin
    execute format('
        delete from mindful.embedding_job j
        using rows from (unnest($2), unnest($3), unnest($4)) k (tenant, id, content_hash)
        where j.tenant = k.tenant and j.id = k.id and j.model = $1 and j.content_hash = k.content_hash
            and (
                exists (select from mindful.%I e
                    where e.tenant = k.tenant and e.id = k.id and e.content_hash = k.content_hash)
                or not exists (select from mindful.memory m
                    where m.tenant = k.tenant and m.id = k.id and m.content_hash = k.content_hash)
            )', mindful._embedding_table(model)) using model, tenants, ids, hashes;
    get diagnostics settled = row_count;
    update mindful.embedding_job j set run_after = clock_timestamp() + interval '1 second'
    from rows from (unnest(tenants), unnest(ids), unnest(hashes)) k (tenant, id, content_hash)
    where j.tenant = k.tenant and j.id = k.id and j.model = _job_settle.model and j.content_hash = k.content_hash;
    return settled;
end
$$;
comment on function _job_settle(text, text[], bigint[], text[]) is
'Removes jobs that are done, or whose text is gone, and returns how many; the memories of the others are being changed, and are looked at a second later.';

create function _job_fail(model text, tenant text, ids bigint[], hashes text[], error text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
    most integer := mindful.setting_get('job_attempts') #>> '{}';
    retry_s integer := mindful.setting_get('job_retry_s') #>> '{}';
begin
    update mindful.embedding_job j
    set attempts = j.attempts + 1, last_error = left(error, 1000),
        run_after = clock_timestamp() + make_interval(secs => least(retry_s * 2.0 ^ least(j.attempts, 30), 3600))
    from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
    where j.tenant = _job_fail.tenant and j.id = k.id and j.model = _job_fail.model and j.content_hash = k.content_hash;
    with dead as (
        delete from mindful.embedding_job j
        using rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
        where j.tenant = _job_fail.tenant and j.id = k.id and j.model = _job_fail.model
            and j.content_hash = k.content_hash and j.attempts >= most
        returning j.*
    )
    insert into mindful.embedding_job_failed (tenant, id, model, content_hash, attempts, error, enqueued_at)
    select d.tenant, d.id, d.model, d.content_hash, d.attempts, d.last_error, d.enqueued_at from dead d
    on conflict (tenant, id, model, content_hash) do update
        set attempts = excluded.attempts, error = excluded.error, failed_at = excluded.failed_at;
exception when lock_not_available then
    -- A tenant that holds a dead letter of his own delays nobody but himself.
    update mindful.embedding_job j set run_after = clock_timestamp() + interval '1 hour', last_error = left(error, 1000)
    from rows from (unnest(ids), unnest(hashes)) k (id, content_hash)
    where j.tenant = _job_fail.tenant and j.id = k.id and j.model = _job_fail.model and j.content_hash = k.content_hash;
end
$$;
comment on function _job_fail(text, text, bigint[], text[], text) is
'Counts an attempt of jobs of one tenant: they are tried again later and later, and at last become dead letters.';

create type job_outcome as (
    embedded integer,
    dropped integer,
    failed integer
);
comment on type job_outcome is 'What a worker did: embeddings stored, jobs there was nothing left to do for, attempts that failed.';

create function _job_run_own(max_jobs integer, max_seconds real) returns job_outcome
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.job import job_run_own
return job_run_own(max_jobs, max_seconds)
$python$;
comment on function _job_run_own(integer, real) is 'job_run for the caller''s own jobs.';

create function _job_run_all(max_jobs integer, max_seconds real) returns job_outcome
language plpython3u volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.job import job_run_all
return job_run_all(max_jobs, max_seconds)
$python$;
comment on function _job_run_all(integer, real) is
'job_run for the jobs of all tenants. It runs as the extension''s owner, above row-level security, but tells nothing of what it reads.';

create function job_run(max_jobs integer default 1000, max_seconds real default 60) returns job_outcome
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._integer_argument('max_jobs', max_jobs, 1, 1000000);
    if max_seconds is null then
        perform mindful._raise('22004', 'max_seconds is null', 'Give a number of seconds.');
    elsif not max_seconds between 0 and 86400 then
        perform mindful._raise('22023', format('max_seconds is %s', max_seconds), 'It must be between 0 and 86400.');
    elsif pg_has_role(current_user, 'mindful_admin', 'usage') then
        return mindful._job_run_all(max_jobs, max_seconds);
    end if;
    return mindful._job_run_own(max_jobs, max_seconds);
end
$$;
comment on function job_run(integer, real) is
'Embeds memories that wait in embedding_job, up to max_jobs of them or until max_seconds have passed (a batch that has begun is ended), and returns what was done: embedded, dropped (the text was embedded already, or has changed), failed. An administrator''s call works for all tenants in equal shares, a user''s for himself. All is done in the caller''s transaction: job_worker commits in between. Any number of workers may run at once; the jobs of one that is killed go to the next. A text that fails does not keep others of its batch from being embedded; it is tried again after job_retry_s seconds, each time twice as late, and after job_attempts attempts becomes a dead letter. Errors: 22004, 22023.';

create procedure job_worker(max_seconds real default 60, idle boolean default false)
language plpython3u security invoker
as $python$
from mindful.job import job_worker
return job_worker(max_seconds, idle)
$python$;
comment on procedure job_worker(real, boolean) is
'Runs job_run() batch by batch, each in a transaction of its own, until no job is due or max_seconds have passed; with idle it waits for jobs all that time. Call it outside of any transaction. Errors: 22004, 22023, 55000 (within a transaction).';

create function _job_retry(model text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with back as (
        delete from mindful.embedding_job_failed f
        where _job_retry.model is null or f.model = _job_retry.model
        returning f.*
    ),
    enqueued as (
        insert into mindful.embedding_job (tenant, id, model, content_hash)
        select b.tenant, b.id, b.model, b.content_hash from back b
        on conflict do nothing
    )
    select pg_catalog.count(*) from back;
end;
comment on function _job_retry(text) is 'Puts the dead letters that the caller reaches back into the queue.';

create function _job_retry_all(model text) returns bigint
language sql volatile parallel unsafe security definer
begin atomic
    select mindful._job_retry(model);
end;
comment on function _job_retry_all(text) is 'Puts the dead letters of all tenants back into the queue.';

create function job_retry(model text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if pg_has_role(current_user, 'mindful_admin', 'usage') then
        return mindful._job_retry_all(model);
    end if;
    return mindful._job_retry(model);
end
$$;
comment on function job_retry(text) is
'Puts dead letters (embedding_job_failed), those of one model or of all (NULL), back into the queue, with no attempt counted, and returns how many: the caller''s own, or an administrator''s call those of all tenants.';

create function job_schedule(schedule text default '* * * * *') returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    job text;
begin
    if not exists (select from pg_extension e where e.extname = 'pg_cron') then
        perform mindful._raise('55000', 'the extension pg_cron is not installed in this database',
            'Install it, or run the worker in another way: mindful worker, or CALL mindful.job_worker().');
    end if;
    foreach job in array array['mindful_worker', 'mindful_sweep'] loop
        if exists (select from cron.job j where j.jobname = job and j.username = current_user) then
            perform cron.unschedule(job);
        end if;
    end loop;
    if schedule is null then
        return false;
    end if;
    -- Never idle: while a job runs, pg_cron's launcher answers no barrier, and every DROP DATABASE waits for it.
    perform cron.schedule('mindful_worker', schedule, 'call mindful.job_worker(max_seconds => 55)');
    perform cron.schedule('mindful_sweep', '17 * * * *', 'select mindful.embedding_sweep()');
    return true;
end
$$;
comment on function job_schedule(text) is
'Has pg_cron run a worker at a schedule (crontab''s five fields; NULL ends it), each until nothing is left or for 55 seconds, and a sweep every hour, as the calling role: an administrator''s works for all tenants. Returns whether they are scheduled now. Errors: 55000 (no pg_cron), 42501 (no right to the schema cron).';

grant select, insert, update, delete on embedding_job, embedding_job_failed to mindful_user;
grant select on embedding_status to mindful_user, mindful_reader;
revoke execute on function
    model_default_set(text, boolean),
    _memory_tenants(),
    _embedder(text),
    _embedding_sweep(text),
    _embedding_sweep_all(text),
    embedding_sweep(text),
    _embedding_missing(text),
    _embedding_count(),
    _embedding_count_all(),
    _embedding_status(),
    embedding_compare(text, text[], integer),
    _embedding_mode(),
    _memory_enqueue(),
    job_replica_set(boolean),
    _job_take(integer),
    _job_store(text, text, bigint[], text[], text[]),
    _job_settle(text, text[], bigint[], text[]),
    _job_fail(text, text, bigint[], text[], text),
    _job_run_own(integer, real),
    _job_run_all(integer, real),
    job_run(integer, real),
    _job_retry(text),
    _job_retry_all(text),
    job_retry(text),
    job_schedule(text)
from public;
revoke execute on procedure job_worker(real, boolean) from public;
grant execute on function
    _memory_tenants(),
    _embedder(text),
    _embedding_sweep(text),
    embedding_sweep(text),
    _embedding_count(),
    _embedding_status(),
    embedding_compare(text, text[], integer),
    _embedding_mode(),
    _memory_enqueue(),
    _job_take(integer),
    _job_store(text, text, bigint[], text[], text[]),
    _job_settle(text, text[], bigint[], text[]),
    _job_fail(text, text, bigint[], text[], text),
    _job_run_own(integer, real),
    job_run(integer, real),
    _job_retry(text),
    job_retry(text),
    job_schedule(text)
to mindful_user;
grant execute on function
    _embedding_missing(text),
    _embedding_sweep_all(text),
    _job_run_all(integer, real),
    _job_retry_all(text),
    job_replica_set(boolean),
    model_default_set(text, boolean),
    embedding_sweep(text),
    job_run(integer, real),
    job_retry(text),
    job_schedule(text),
    _integer_argument(text, integer, integer, integer)
to mindful_admin;
grant execute on procedure job_worker(real, boolean) to mindful_user, mindful_admin;
grant execute on function _embedding_status(), _embedding_count_all() to mindful_reader;

-- engine
drop function
    llm_generate(text, text, integer, real, integer, text, text[], boolean),
    llm_generate_detail(text, text, integer, real, integer, text, text[], boolean),
    llm_stream(text, text, integer, real, integer, text, text[], boolean);

create function llm_generate(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_generate
return llm_generate(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'Answers a prompt with a generator (NULL: the default one). A NULL prompt gives NULL. At most max_tokens tokens are made; temperature 0 always takes the likeliest token; a seed makes a call give the same text again on the same machine, at the price of evaluating the whole prompt anew. Generation ends at any of the stop strings, which are not returned. A prompt longer than the model''s context is error 54000, or is cut at its end where truncate is true. With json_schema (see llm_extract) the answer is JSON that fits it, or error 54000 (not complete after max_tokens) or 22000; say in the prompt what is wanted, as the model does not read the schema. A grammar is GBNF, as llama.cpp has it, and begins with the rule root. Other errors: 22023 (bad argument, schema or grammar), 42704 (no such model), 57014 (cancelled).';

create function llm_generate_detail(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns generation_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_generate_detail
return llm_generate_detail(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_generate_detail(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'As llm_generate, with what the call cost and how sure the model was. Confidence is exp(mean log-probability of the tokens), in (0, 1], not calibrated. Signals: logprob_sum, logprob_mean, logprob_min, logprob_first (nats), entropy_mean, entropy_max (nats), margin_min (difference of the two best probabilities), tokens. finish_reason is stop or length. A NULL prompt gives NULLs.';

create function llm_stream(
    prompt text,
    model text default null,
    max_tokens integer default 256,
    temperature real default 0,
    seed integer default null,
    system_prompt text default null,
    stop text[] default '{}',
    truncate boolean default false,
    json_schema jsonb default null,
    grammar text default null
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.llm import llm_stream
return llm_stream(prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar)
$python$;
comment on function llm_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text) is
'As llm_generate, one row per piece of text as it is made, never half a character. The rows arrive one by one where the function stands in the select list and is read through a cursor (psql: \set FETCH_COUNT 1). An answer that does not fit json_schema is an error at its end. A NULL prompt gives no rows.';

create function llm_if_many(contents text[], condition text, model text default null) returns boolean[]
language plpython3u stable parallel restricted security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.label import llm_if_many
return llm_if_many(contents, condition, model)
$python$;
comment on function llm_if_many(text[], text, text) is
'As llm_if for many texts in shared batches; the answers stand in the order of the texts, NULL for NULL. A NULL array or condition gives NULL. Errors as llm_if.';

create function llm_extract_many(
    contents text[],
    json_schema jsonb,
    instruction text default null,
    model text default null,
    max_tokens integer default 512
) returns jsonb[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.structure import llm_extract_many
return llm_extract_many(contents, json_schema, instruction, model, max_tokens)
$python$;
comment on function llm_extract_many(text[], jsonb, text, text, integer) is
'As llm_extract for many texts, evaluated side by side: the instruction and the schema are evaluated once, and the answers are made in shared batches. They stand in the order of the texts, NULL for NULL; a NULL array gives NULL. One that fails fails all; the message says which text it is about. Errors as llm_extract.';

revoke execute on function
    llm_generate(text, text, integer, real, integer, text, text[], boolean, jsonb, text),
    llm_generate_detail(text, text, integer, real, integer, text, text[], boolean, jsonb, text),
    llm_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text),
    llm_if_many(text[], text, text),
    llm_extract_many(text[], jsonb, text, text, integer)
from public;
grant execute on function
    llm_generate(text, text, integer, real, integer, text, text[], boolean, jsonb, text),
    llm_generate_detail(text, text, integer, real, integer, text, text[], boolean, jsonb, text),
    llm_stream(text, text, integer, real, integer, text, text[], boolean, jsonb, text),
    llm_if_many(text[], text, text),
    llm_extract_many(text[], jsonb, text, text, integer)
to mindful_user;

alter table model add column base text references model, add constraint model_base check (base is null or kind = 'generator');
create index model_base on model (base) where base is not null;
comment on column model.base is 'The generator that this one, an adapter, changes; NULL for a model in its own right.';

drop function _model_find(text, text);
create function _model_find(kind text, name text)
returns table (name text, kind text, provider text, source text, sha256 text, options jsonb, adapter text)
language sql stable parallel safe security invoker
begin atomic
    select m.name, m.kind, m.provider, coalesce(b.source, m.source), m.sha256, coalesce(b.options, '{}') || m.options,
        case when b.name is not null then m.source end
    from mindful.model m
    left join mindful.model b on b.name = m.base
    where m.kind = _model_find.kind
        and (m.base is null or b.name is not null)
        and (m.name = _model_find.name or _model_find.name is null and m.is_default);
end;
comment on function _model_find(text, text) is 'The named model, or the default one of its kind, if the caller may use it; of an adapter the base''s source, which the caller must be allowed to use too, and the options of both.';

create function adapter_register(
    name text,
    base text,
    source text,
    scale real default 1,
    options jsonb default '{}',
    granted_to text[] default '{mindful_user}'
) returns text
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.model import adapter_register
return adapter_register(name, base, source, scale, options, granted_to)
$python$;
comment on function adapter_register(text, text, text, real, jsonb, text[]) is
'Registers a LoRA adapter (a GGUF file) of a generator of llama_cpp as a generator of its own: name it as the model of a call, or make it the default with model_default_set; naming the base takes it back. The source is an absolute path on the server; the file is loaded once with its base, and its hash is kept, so that one that was changed is refused. Scale says how strongly it is applied: 1 as it was trained, 0 not at all. Options: system_prompt, layout and prompt_lookup, where they are to be other than the base''s. Whoever uses it must be allowed to use the base too. For administrators (mindful_admin). Errors: 22004, 22023 (bad argument, no possible base), 42704 (no such base), 42710 (name taken), 58P01 (no such file), XX001 (file damaged, or not made for this base).';

revoke execute on function
    _model_find(text, text),
    adapter_register(text, text, text, real, jsonb, text[])
from public;
grant execute on function _model_find(text, text) to mindful_user, mindful_admin;
grant execute on function adapter_register(text, text, text, real, jsonb, text[]) to mindful_admin;

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_keep', 'boolean', null, null, '{global,user}', 'true',
        'Whether a connection keeps the models that it has loaded when a transaction ends; where not, it gives their memory back then, and loads them again when it needs them.');

create or replace view model_usage with (security_barrier = true) as
select created_at::date as day, tenant, model, role, count(*) as generations, sum(prompt_tokens) as prompt_tokens,
    sum(cached_tokens) as cached_tokens, sum(completion_tokens) as completion_tokens,
    avg(first_token_ms) as mean_first_token_ms, avg(total_ms) as mean_total_ms,
    count(*) filter (where finish_reason = 'length') as cut_by_length,
    count(*) filter (where finish_reason = 'stop') as ended, avg(slot_wait_ms) as mean_slot_wait_ms,
    max(slot_wait_ms) as max_slot_wait_ms
from mindful.generation
where tenant = (select mindful._tenant()) or (select mindful._reads_all())
group by created_at::date, tenant, model, role;
comment on view model_usage is 'What generators did, by day, tenant, model and role: for oneself, or for mindful_reader for all. Answers ended of themselves or were cut by length; times are in milliseconds, waiting for a slot among them.';

-- fact
drop function memory_insert(text, text, jsonb, text, text);
drop function memory_insert_many(jsonb);

create function _memory_argument(name text, id bigint) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select case
        when id is null then mindful._raise('22004', name || ' is null', 'Give the id of a memory.')::text::bigint
        when exists (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.id = _memory_argument.id)
            then id
        else mindful._raise('42704', pg_catalog.format('there is no memory %s (%s)', id, name),
            'Your own memories are in mindful.memory.')::text::bigint
    end;
end;
comment on function _memory_argument(text, bigint) is 'Returns the id of one of the tenant''s memories, or raises 22004 or 42704.';

create function _share_argument(name text, value jsonb) returns real
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(value) = 'null' then null
        when pg_catalog.jsonb_typeof(value) <> 'number' or not value::numeric between 0 and 1
            then mindful._raise('22023', pg_catalog.format('%s is %s', name, value), 'It must be a number from 0 to 1.')::text::real
        else value::real
    end;
end;
comment on function _share_argument(text, jsonb) is 'Returns a number from 0 to 1, NULL for none, or raises 22023.';

create function _level_argument(name text, level text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when level is null or level = any (array['data', 'information', 'knowledge', 'wisdom']) then level
        else mindful._raise('22023', pg_catalog.format('%s is %L', name, level),
            'Levels are data, information, knowledge and wisdom.')::text
    end;
end;
comment on function _level_argument(text, text) is 'Returns a level, NULL for none, or raises 22023.';

create function _time_argument(name text, value text) returns timestamptz
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return value::timestamptz;
exception when invalid_datetime_format or datetime_field_overflow then
    perform mindful._raise('22023', format('%s is %L', name, value), 'Give a time such as 2026-01-31 12:00+00.');
end
$$;
comment on function _time_argument(text, text) is 'Returns a time, NULL for none, or raises 22023.';

create function _valid_to_argument(name text, valid_from timestamptz, valid_to timestamptz) returns timestamptz
language sql stable parallel safe security invoker
begin atomic
    select case
        when valid_from >= valid_to then mindful._raise('22023',
            pg_catalog.format('%s is %s, not after valid_from, %s', name, valid_to, valid_from),
            'What is true from one time until another ends after it begins.')::text::timestamptz
        else valid_to
    end;
end;
comment on function _valid_to_argument(text, timestamptz, timestamptz) is 'Returns the end of a validity, or raises 22023 if it is not after the beginning.';

create function _squeeze(content text) returns text
language sql immutable strict parallel safe security invoker
begin atomic
    select pg_catalog.btrim(pg_catalog.regexp_replace(content, '\s+', ' ', 'g'));
end;
comment on function _squeeze(text) is 'A text with every run of white space as one blank.';

create function _quote_argument(name text, source_id bigint, quote text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when a.id is null then null  -- which it never is: unasked for, an empty table's rows would not be looked up
        when pg_catalog.octet_length(a.quote) > 2000
            then mindful._raise('54000', pg_catalog.format('%s has %s bytes, more than 2000', name, pg_catalog.octet_length(a.quote)),
                'Quote the words that say it, and no others.')::text
        when pg_catalog.strpos(
            (select mindful._squeeze(m.content) from mindful.memory m where m.tenant = (select mindful._tenant()) and m.id = a.id),
            a.quote) > 0 then a.quote
        else mindful._raise('22023', pg_catalog.format('%s does not stand in memory %s', name, source_id),
            'Quote the words of the source as they are; only white space may differ.')::text
    end
    from (
        select mindful._squeeze(mindful._text_argument(name, _quote_argument.quote)) as quote,
            mindful._memory_argument('source_id of ' || name, source_id) as id
    ) a;
end;
comment on function _quote_argument(text, bigint, text) is
'Returns a quote that stands in the source''s text, with runs of white space as one blank, or raises 22004, 22023, 42704 (no such source of the tenant''s) or 54000.';

create function _evidence(name text, evidence jsonb) returns table (source_id bigint, quote text)
language sql stable parallel safe security invoker rows 3
begin atomic
    select s.source_id,
        mindful._quote_argument(pg_catalog.format('quote %s of %s', e.number, name), s.source_id, e.element ->> 'quote')
    from mindful._array_elements(name, coalesce(nullif(evidence, 'null'), '[]'), '{source_id,quote}') e,
        lateral (
            select case
                when e.element ->> 'source_id' ~ '^[0-9]{1,18}$' then (e.element ->> 'source_id')::bigint
                else mindful._raise('22023', pg_catalog.format('source_id of quote %s of %s is %s', e.number, name,
                    coalesce(e.element ->> 'source_id', 'null')), 'Give the id of a memory.')::text::bigint
            end as source_id
        ) s;
end;
comment on function _evidence(text, jsonb) is
'The source ids and quotes of an array of {source_id, quote}; raises 22004, 22023 or 42704, naming the quote.';

create function _memory_insert_many(memories jsonb) returns setof bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with element as materialized (
        select e.element, e.number, 'of element ' || e.number as place,
            mindful._time_argument('valid_from of element ' || e.number, e.element ->> 'valid_from') as valid_from,
            mindful._time_argument('valid_to of element ' || e.number, e.element ->> 'valid_to') as valid_to
        from mindful._array_elements('memories', memories,
            '{content,kind,metadata,source,source_key,importance,confidence,level,valid_from,valid_to,evidence}') e
    ),
    inserted as (
        insert into mindful.memory (kind, content, metadata, source, source_key, importance, confidence, level,
            valid_from, valid_to)
        select mindful._memory_kind(coalesce(e.element ->> 'kind', 'fact')),
            mindful._text_argument('content ' || e.place, e.element ->> 'content'),
            mindful._metadata(e.element -> 'metadata'),
            e.element ->> 'source',
            e.element ->> 'source_key',
            coalesce(mindful._share_argument('importance ' || e.place, e.element -> 'importance'), 0.5),
            mindful._share_argument('confidence ' || e.place, e.element -> 'confidence'),
            coalesce(mindful._level_argument('level ' || e.place, e.element ->> 'level'), 'data'),
            e.valid_from,
            mindful._valid_to_argument('valid_to ' || e.place, e.valid_from, e.valid_to)
        from element e
        order by e.number
        returning id
    ),
    -- Ids rise in the order of the elements.
    numbered as (
        select i.id, pg_catalog.row_number() over (order by i.id) as number from inserted i
    ),
    proved as (
        insert into mindful.memory_evidence (id, source_id, quote)
        select distinct n.id, v.source_id, v.quote
        from numbered n
        join element e on e.number = n.number,
            mindful._evidence('evidence ' || e.place, e.element -> 'evidence') v
    )
    select n.id from numbered n order by n.id;
end;
comment on function _memory_insert_many(jsonb) is
'Stores memories, duplicates or not; see memory_insert_many.';

insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('memory_duplicates', 'text', null, null, '{global,user}', '"keep"',
        'What becomes of a fact that is remembered already: keep stores it again, join_exact counts it if the text is the same, join_near also if it means nearly the same.',
        '{keep,join_exact,join_near}'),
    ('memory_duplicate_similarity', 'number', 0.5, 1, '{global,user}', '0.95',
        'From which cosine similarity of their embeddings on join_near takes two facts for the same.', null);

create index memory_fact on memory (tenant, content_hash) where kind = 'fact' and source is null;

-- One row a text, because its lock is what keeps two writers from remembering the same at once. An advisory lock
-- could be taken by anybody who guesses the text.
create table memory_duplicate (
    tenant text not null default _tenant(),
    content_hash text not null,
    id bigint,
    repeats bigint not null default 0 check (repeats >= 0),
    last_at timestamptz not null default now(),
    primary key (tenant, content_hash),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade
);
create index on memory_duplicate (tenant, id);
comment on table memory_duplicate is 'How often facts were remembered again and joined with the memory that was there (setting memory_duplicates).';
comment on column memory_duplicate.content_hash is 'That of the fact; empty in the row that writers with join_near lock.';
alter table memory_duplicate enable row level security;
alter table memory_duplicate force row level security;
create policy own on memory_duplicate using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
select pg_catalog.pg_extension_config_dump('mindful.memory_duplicate', '');

create function _memory_joinable(fact memory) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select fact.kind = 'fact' and fact.source is null and fact.source_key is null and fact.superseded_by is null
        and fact.valid_from is null and fact.valid_to is null;
end;
comment on function _memory_joinable(memory) is
'Whether a memory can be one with another: a fact that no source keeps, and that is true for ever as far as is known.';

create function _memory_near(fact memory, later bigint[]) returns bigint
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'strict_order'
as $$
declare
    embedder text := (select f.name from mindful._model_find('embedder', null) f);
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    least_similarity double precision := mindful.setting_get('memory_duplicate_similarity') #>> '{}';
    found_embedding text;
    found_id bigint;
begin
    if embedder is null then
        return null;
    end if;
    execute format('select e.embedding::text from mindful.%I e where e.tenant = $1 and e.id = $2 and e.content_hash = $3',
        mindful._embedding_table(embedder)) using fact.tenant, fact.id, fact.content_hash into found_embedding;
    if found_embedding is null then
        return null;
    end if;
    -- The tenant as a constant: an index of its own is found by it.
    execute format('
        select n.id
        from (
            select m.id, e.embedding operator(%1$s.<=>) $1::%1$s.vector as distance
            from mindful.%2$I e
            join mindful.memory m on m.tenant = e.tenant and m.id = e.id and m.content_hash = e.content_hash
            where e.tenant = %3$L and e.id <> all ($2) and m.metadata @> $3 and mindful._memory_joinable(m)
            order by e.embedding operator(%1$s.<=>) $1::%1$s.vector
            limit 1
        ) n
        where n.distance <= 1 - $4', vector_schema, mindful._embedding_table(embedder), fact.tenant)
    using found_embedding, later, fact.metadata, least_similarity into found_id;
    return found_id;
end
$$;
comment on function _memory_near(memory, bigint[]) is
'The fact nearest to a given one by the default embedder that the setting memory_duplicate_similarity takes for the same; it holds the metadata of the given one, and is none of those of the array.';

create function _memory_same(fact memory, later bigint[]) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.min(m.id)
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.kind = 'fact' and m.source is null
        and m.content_hash = fact.content_hash and m.content = fact.content
        and m.id <> all (later) and m.metadata @> fact.metadata and mindful._memory_joinable(m);
end;
comment on function _memory_same(memory, bigint[]) is
'The oldest fact with the text of a given one; it holds the metadata of the given one, and is none of those of the array.';

create function _memory_repeat(id bigint) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.memory_duplicate as d (content_hash, id, repeats)
    select m.content_hash, m.id, 1
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.id = _memory_repeat.id
    on conflict (tenant, content_hash) do update
        set id = excluded.id, repeats = d.repeats + 1, last_at = pg_catalog.clock_timestamp();
end;
comment on function _memory_repeat(bigint) is 'Counts that a fact was remembered once more.';

create function _memory_join_lock(ids bigint[], near boolean) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if near then
        insert into mindful.memory_duplicate (content_hash) values ('')
        on conflict (tenant, content_hash) do update set last_at = clock_timestamp();
    end if;
    -- In one order, lest two writers wait for each other.
    insert into mindful.memory_duplicate (content_hash, id)
    select m.content_hash, min(m.id)
    from mindful.memory m
    where m.tenant = mindful._tenant() and m.id = any (ids) and mindful._memory_joinable(m)
    group by m.content_hash
    order by m.content_hash
    on conflict (tenant, content_hash) do update set last_at = clock_timestamp();
end
$$;
comment on function _memory_join_lock(bigint[], boolean) is
'Keeps others from joining facts with the same texts, or with near any, until the transaction ends: what they have written is to be seen first.';

create function _memory_join(ids bigint[], near boolean) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    fact mindful.memory;
    older bigint;
    later bigint[];
    stays bigint[] := ids;
    position integer;
begin
    perform mindful._memory_join_lock(ids, near);
    for position in 1 .. cardinality(ids) loop
        select m.* into fact from mindful.memory m where m.tenant = mindful._tenant() and m.id = ids[position];
        later := ids[position:];
        older := null;
        if mindful._memory_joinable(fact) then
            older := mindful._memory_same(fact, later);
            if older is null and near then
                older := mindful._memory_near(fact, later);
            end if;
        end if;
        if older is not null then
            insert into mindful.memory_evidence (id, source_id, quote)
            select older, v.source_id, v.quote
            from mindful.memory_evidence v
            where v.tenant = fact.tenant and v.id = fact.id and v.source_id <> older
            on conflict do nothing;
            perform mindful._memory_repeat(older);
            delete from mindful.memory m where m.tenant = fact.tenant and m.id = fact.id;
            stays[position] := older;
        end if;
    end loop;
    return query select unnest(stays);
end
$$;
comment on function _memory_join(bigint[], boolean) is
'Joins facts that have just been written with those that were there, which are counted and get their evidence, and returns the ids that stay, one for each.';

create function _memory_supersede(ids bigint[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    fact mindful.memory;
    older bigint;
begin
    perform mindful._memory_join_lock(ids, true);
    for fact in
        select m.* from mindful.memory m
        where m.tenant = mindful._tenant() and m.id = any (ids) and mindful._memory_joinable(m)
        order by m.id
    loop
        older := mindful._memory_near(fact, array(select i from unnest(ids) i where i >= fact.id));
        if older is not null then
            update mindful.memory m set superseded_by = older, valid_to = clock_timestamp()
            where m.tenant = fact.tenant and m.id = fact.id;
            perform mindful._memory_repeat(older);
        end if;
    end loop;
end
$$;
comment on function _memory_supersede(bigint[]) is
'Joins facts that a worker has embedded with those nearly the same: as their ids are known by now, they stay, superseded.';

create function memory_insert_many(memories jsonb) returns setof bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    duplicates text := mindful.setting_get('memory_duplicates') #>> '{}';
begin
    if duplicates = 'keep' then
        return query select mindful._memory_insert_many(memories);
    else
        return query select mindful._memory_join(
            array(select mindful._memory_insert_many(memories)), duplicates = 'join_near');
    end if;
end
$$;
comment on function memory_insert_many(jsonb) is
'Remembers an array of objects with the fields of memory_insert, embedded in batches, and returns their ids in order. All or none: the error names the element. With the setting memory_duplicates join_exact, a fact whose text is remembered already (in force, without a source or validity of its own, and with the same metadata or more) is counted in memory_duplicate, adds its evidence, and has the id of the memory that was there; with join_near also one that means nearly the same. What waits to be embedded by a worker is joined by him, if near, and is superseded then. Errors as memory_insert.';

create function memory_insert(
    content text,
    kind text default 'fact',
    metadata jsonb default '{}',
    source text default null,
    source_key text default null,
    importance real default null,
    confidence real default null,
    level text default null,
    valid_from timestamptz default null,
    valid_to timestamptz default null,
    evidence jsonb default '[]'
) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    select mindful.memory_insert_many(pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
        'content', mindful._text_argument('content', content), 'kind', mindful._memory_kind(kind), 'metadata', metadata,
        'source', source, 'source_key', source_key, 'importance', importance, 'confidence', confidence,
        'level', level, 'valid_from', valid_from, 'valid_to', valid_to, 'evidence', evidence)));
end;
comment on function memory_insert(text, text, jsonb, text, text, real, real, text, timestamptz, timestamptz, jsonb) is
'Remembers a text and returns its id. Kinds: fact, document, summary, reflection (messages come by message_insert). Importance (NULL: 0.5) and confidence are from 0 to 1; levels are data (NULL), information, knowledge, wisdom; it is true from valid_from until before valid_to, NULL being for ever. Evidence is an array of {"source_id", "quote"} as in memory_evidence_insert. It is indexed and, if there is a default embedder, embedded in the same transaction. Errors: 22004 (NULL), 22023 (empty text, unknown kind or level, out of range, a quote that its source does not hold), 42704 (no such source of yours), 54000 (over 262144 bytes), 23505 (source and source_key taken).';

create function memory_evidence_insert(id bigint, source_id bigint, quote text) returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    with proved as (
        insert into mindful.memory_evidence (id, source_id, quote)
        select mindful._memory_argument('id', id),
            case
                when id = source_id
                    then mindful._raise('22023', pg_catalog.format('memory %s is no evidence of itself', id),
                        'Quote the memory that it was drawn from.')::text::bigint
                else source_id
            end,
            mindful._quote_argument('quote', source_id, quote)
        on conflict do nothing
        returning 1
    )
    select exists (select from proved);
end;
comment on function memory_evidence_insert(bigint, bigint, text) is
'Says what a memory rests on: words that stand in the text of another memory, the source; runs of white space count as one blank. Returns whether that is new. Errors: 22004, 22023 (the source does not hold the quote), 42704 (no such memory of yours).';

create function _memory_updatable(id bigint) returns memory
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_memory mindful.memory;
begin
    select m.* into found_memory
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.id = mindful._memory_argument('id', _memory_updatable.id)
    for no key update;
    if not found then  -- deleted while this waited for its lock
        perform mindful._memory_argument('id', id);
    elsif found_memory.kind = 'message' then
        perform mindful._raise('42809', format('memory %s is a message, which is never rewritten', id),
            'What was said stays as it was said; insert a fact that has it as evidence.');
    elsif found_memory.superseded_by is not null then
        perform mindful._raise('55000', format('memory %s was superseded by memory %s', id, found_memory.superseded_by),
            format('Update memory %s, or the last one of memory_history(%s).', found_memory.superseded_by, id));
    elsif exists (
        select from mindful.attachment a
        where a.tenant = (select mindful._tenant()) and a.source = found_memory.source
    ) then
        perform mindful._raise('55000', format('memory %s is a row of %s', id, found_memory.source),
            'Change the row: its memory follows.');
    end if;
    return found_memory;
end
$$;
comment on function _memory_updatable(bigint) is 'Locks and returns a memory that can be superseded, or raises 22004, 42704, 42809 or 55000.';

create function memory_update(
    id bigint,
    content text,
    metadata jsonb default null,
    importance real default null,
    confidence real default null,
    level text default null,
    valid_from timestamptz default null,
    valid_to timestamptz default null,
    evidence jsonb default '[]'
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    old mindful.memory := mindful._memory_updatable(memory_update.id);
    since timestamptz := coalesce(memory_update.valid_from, now());
    until timestamptz := coalesce(memory_update.valid_to, case when old.valid_to > since then old.valid_to end);
    new_id bigint;
begin
    -- A key stands for what is true of its source now: the new version takes it over.
    if old.source_key is not null then
        update mindful.memory m set source_key = null where m.tenant = old.tenant and m.id = old.id;
    end if;
    insert into mindful.memory (kind, content, metadata, session_id, source, source_key, importance, confidence, level,
        valid_from, valid_to)
    values (
        old.kind,
        mindful._text_argument('content', memory_update.content),
        case when memory_update.metadata is null then old.metadata else mindful._metadata(memory_update.metadata) end,
        old.session_id, old.source, old.source_key,
        coalesce(mindful._share_argument('importance', to_jsonb(memory_update.importance)), old.importance),
        mindful._share_argument('confidence', to_jsonb(memory_update.confidence)),
        coalesce(mindful._level_argument('level', memory_update.level), old.level),
        since,
        mindful._valid_to_argument('valid_to', since, until)
    )
    returning id into new_id;
    update mindful.memory m
    set superseded_by = new_id, valid_to = greatest(old.valid_from, least(old.valid_to, since))
    where m.tenant = old.tenant and m.id = old.id;
    insert into mindful.memory_evidence (id, source_id, quote)
    select distinct new_id, v.source_id, v.quote from mindful._evidence('evidence', memory_update.evidence) v;
    insert into mindful.memory_link (source_id, target_id, relation, weight)
    select new_id, l.target_id, l.relation, l.weight from mindful.memory_link l
    where l.tenant = old.tenant and l.source_id = old.id
    union all
    select l.source_id, new_id, l.relation, l.weight from mindful.memory_link l
    where l.tenant = old.tenant and l.target_id = old.id;
    return new_id;
end
$$;
comment on function memory_update(bigint, text, jsonb, real, real, text, timestamptz, timestamptz, jsonb) is
'Supersedes a memory by a new text, and returns the new memory''s id; the old one is kept as it was, true until before valid_from (NULL: now) and pointing at the new one. The new one has its kind, session, source, source_key (which the old one gives up) and links, and, where they are NULL here, its metadata, importance, level and the end of its validity if that is still ahead. Confidence and evidence are of a text, so they are not carried over. A valid_from of -infinity says that the old one was never true. Of two updates of a memory at once one wins, the other fails with 55000. Errors: 22004, 22023, 42704 (no such memory of yours), 42809 (a message, which is never rewritten), 55000 (superseded already; a row of an attached table), 54000.';

create type memory_version as (
    id bigint,
    content text,
    importance real,
    confidence real,
    level text,
    valid_from timestamptz,
    valid_to timestamptz,
    superseded_by bigint,
    created_at timestamptz
);
comment on type memory_version is 'What a memory said, and when that was true.';

create function memory_history(id bigint) returns setof memory_version
language sql stable parallel safe security invoker
begin atomic
    with recursive version as (
        select mindful._memory_argument('id', memory_history.id) as id
        union
        select n.id
        from version v
        cross join lateral (
            select m.superseded_by as id
            from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = v.id and m.superseded_by is not null
            union all
            select m.id
            from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.superseded_by = v.id
        ) n
    )
    select m.id, m.content, m.importance, m.confidence, m.level, m.valid_from, m.valid_to, m.superseded_by, m.created_at
    from version v
    join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = v.id
    order by m.id;
end;
comment on function memory_history(bigint) is
'All versions of a memory, whichever of them is named, oldest first; the one that no other superseded is the last. Errors: 22004, 42704 (no such memory of yours).';

-- link
create function memory_link_insert(source_id bigint, target_id bigint, relation text, weight real default 1) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    is_new boolean;
begin
    if memory_link_insert.source_id = memory_link_insert.target_id then
        perform mindful._raise('22023', format('memory %s is linked to itself', memory_link_insert.source_id),
            'Link two memories.');
    elsif memory_link_insert.relation is null or memory_link_insert.relation !~ '^[a-z][a-z0-9_]{0,62}$' then
        perform mindful._raise('22023', format('relation is %s', coalesce(quote_literal(memory_link_insert.relation), 'null')),
            'Name it in lower case, such as works_for.');
    end if;
    insert into mindful.memory_link as l (source_id, target_id, relation, weight)
    values (
        mindful._memory_argument('source_id', memory_link_insert.source_id),
        mindful._memory_argument('target_id', memory_link_insert.target_id),
        memory_link_insert.relation,
        coalesce(mindful._share_argument('weight', to_jsonb(memory_link_insert.weight)), 1)
    )
    on conflict (tenant, source_id, target_id, relation) do update set weight = excluded.weight
    returning l.xmax = 0 into is_new;
    return is_new;
end
$$;
comment on function memory_link_insert(bigint, bigint, text, real) is
'Says what one memory has to do with another, from source to target, and returns whether that is new; a link that is there already is given the weight, from 0 to 1 (NULL: 1). Errors: 22004, 22023 (relation, weight, a link to itself), 42704 (no such memory of yours).';

create function memory_link_delete(source_id bigint, target_id bigint, relation text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    deleted bigint;
begin
    source_id := mindful._memory_argument('source_id', source_id);
    target_id := mindful._memory_argument('target_id', target_id);
    delete from mindful.memory_link l
    where l.tenant = (select mindful._tenant())
        and l.source_id = memory_link_delete.source_id and l.target_id = memory_link_delete.target_id
        and (memory_link_delete.relation is null or l.relation = memory_link_delete.relation);
    get diagnostics deleted = row_count;
    return deleted;
end
$$;
comment on function memory_link_delete(bigint, bigint, text) is
'Deletes the link of a relation, or all (NULL), from one memory to another, and returns how many there were. Errors: 22004, 42704 (no such memory of yours).';

create type memory_neighbor as (
    id bigint,
    content text,
    kind text,
    relation text,
    weight real,
    depth integer,
    path bigint[]
);
comment on type memory_neighbor is 'A memory, and the links that lead to it.';

create function _direction_argument(direction text) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when direction = any (array['both', 'out', 'in']) then direction
        else mindful._raise('22023', pg_catalog.format('direction is %s', coalesce(pg_catalog.quote_literal(direction), 'null')),
            'Directions are out (from source to target), in and both.')::text
    end;
end;
comment on function _direction_argument(text) is 'Returns a direction, or raises 22023.';

create function _memory_is_true(id bigint, as_of timestamptz) returns boolean
language sql stable parallel safe security invoker
begin atomic
    select exists (
        select from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.id = _memory_is_true.id
            and (as_of is null
                or (m.valid_from is null or m.valid_from <= as_of) and (m.valid_to is null or m.valid_to > as_of))
    );
end;
comment on function _memory_is_true(bigint, timestamptz) is 'Whether the tenant has a memory, and it is true at a time (NULL: at any).';

create function memory_neighbors(
    id bigint,
    depth integer default 1,
    relations text[] default null,
    direction text default 'both',
    k integer default 50,
    fanout integer default 20,
    as_of timestamptz default now()
) returns setof memory_neighbor
language sql stable parallel safe security invoker rows 50
begin atomic
    with recursive argument as (
        select mindful._memory_argument('id', id) as id,
            mindful._integer_argument('depth', depth, 1, 5) as depth,
            mindful._direction_argument(direction) as direction,
            mindful._integer_argument('k', k, 1, 1000) as k,
            mindful._integer_argument('fanout', fanout, 1, 1000) as fanout
    ),
    step as (
        select a.id, null::text as relation, 1::double precision as weight, 0 as depth, array[a.id] as path
        from argument a
        union all
        select n.id, n.relation, s.weight * n.weight, s.depth + 1, s.path || n.id
        from step s
        cross join argument a
        cross join lateral (
            (
                select o.target_id as id, o.relation, o.weight
                from mindful.memory_link o
                where o.tenant = (select mindful._tenant()) and o.source_id = s.id and a.direction <> 'in'
                    and (relations is null or o.relation = any (relations))
                    and o.target_id <> all (s.path)
                    and mindful._memory_is_true(o.target_id, as_of)
                order by o.weight desc
                limit a.fanout
            )
            union all
            (
                select i.source_id, i.relation, i.weight
                from mindful.memory_link i
                where i.tenant = (select mindful._tenant()) and i.target_id = s.id and a.direction <> 'out'
                    and (relations is null or i.relation = any (relations))
                    and i.source_id <> all (s.path)
                    and mindful._memory_is_true(i.source_id, as_of)
                order by i.weight desc
                limit a.fanout
            )
            order by weight desc
            limit a.fanout
        ) n
        where s.depth < a.depth
    ),
    -- Rows come level by level, so what is cut is farthest.
    walked as (
        select s.id, s.relation, s.weight, s.depth, s.path from step s limit 10000
    ),
    best as (
        select distinct on (w.id) w.id, w.relation, w.weight, w.depth, w.path
        from walked w
        where w.depth > 0
        order by w.id, w.depth, w.weight desc, w.path
    )
    select m.id, m.content, m.kind, b.relation, b.weight::real, b.depth, b.path
    from best b
    join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = b.id
    order by b.depth, b.weight desc, m.id
    limit (select a.k from argument a);
end;
comment on function memory_neighbors(bigint, integer, text[], text, integer, integer, timestamptz) is
'The memories that links lead to from one, up to 5 links away, nearest first and at most k: each once, by its shortest path and of those the strongest, with that path, its last relation and the product of its weights. From each memory the fanout strongest links are followed, of some relations (NULL: all), in the direction of the links (out), against it (in) or both, through memories that are true at a time (NULL: at any); at most 10,000 paths in all. Errors: 22004, 22023, 42704 (no such memory of yours).';

revoke execute on function
    _memory_argument(text, bigint),
    _share_argument(text, jsonb),
    _level_argument(text, text),
    _time_argument(text, text),
    _valid_to_argument(text, timestamptz, timestamptz),
    _squeeze(text),
    _quote_argument(text, bigint, text),
    _evidence(text, jsonb),
    memory_insert_many(jsonb),
    memory_insert(text, text, jsonb, text, text, real, real, text, timestamptz, timestamptz, jsonb),
    memory_evidence_insert(bigint, bigint, text),
    _memory_updatable(bigint),
    memory_update(bigint, text, jsonb, real, real, text, timestamptz, timestamptz, jsonb),
    memory_history(bigint),
    memory_link_insert(bigint, bigint, text, real),
    memory_link_delete(bigint, bigint, text),
    _direction_argument(text),
    _memory_is_true(bigint, timestamptz),
    memory_neighbors(bigint, integer, text[], text, integer, integer, timestamptz)
from public;
grant execute on function
    _memory_argument(text, bigint),
    _share_argument(text, jsonb),
    _level_argument(text, text),
    _time_argument(text, text),
    _valid_to_argument(text, timestamptz, timestamptz),
    _squeeze(text),
    _quote_argument(text, bigint, text),
    _evidence(text, jsonb),
    memory_insert_many(jsonb),
    memory_insert(text, text, jsonb, text, text, real, real, text, timestamptz, timestamptz, jsonb),
    memory_evidence_insert(bigint, bigint, text),
    _memory_updatable(bigint),
    memory_update(bigint, text, jsonb, real, real, text, timestamptz, timestamptz, jsonb),
    memory_history(bigint),
    memory_link_insert(bigint, bigint, text, real),
    memory_link_delete(bigint, bigint, text),
    _direction_argument(text),
    _memory_is_true(bigint, timestamptz),
    memory_neighbors(bigint, integer, text[], text, integer, integer, timestamptz)
to mindful_user;

-- recall
drop function memory_recall(text, integer, text[]);
drop function _memory_lexical(text, integer, text[]);
drop function _memory_nearest(text, integer, text[]);
create index memory_valid_from on memory (tenant, valid_from) where valid_from is not null;
create index memory_valid_to on memory (tenant, valid_to) where valid_to is not null;
create index memory_term_sample on memory_term (tenant, lexeme) where hashint8(id) & 31 = 0;

create function llm_rerank(query text, contents text[], model text default null, limit_ms integer default null) returns real[]
language plpython3u stable parallel restricted security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.rerank import llm_rerank
return llm_rerank(query, contents, model, limit_ms)
$python$;
comment on function llm_rerank(text, text[], text, integer) is
'How well each text answers a query, by a reranker (NULL: the default one), which reads both together: a score a text, in their order, the higher the better, on the model''s own scale. NULL for NULL, and for what limit_ms milliseconds did not suffice for; NULL query or array gives NULL. Errors: 22023 (empty query or text, limit_ms below 1), 42704 (no such model), 55000 (no default reranker), 54000 (query or text over 262144 bytes).';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('recall_weight_bm25', 'number', 0, 1, '{global,user}', '0',
        'Weight of a memory''s own words in memory_recall.'),
    ('recall_weight_bm25_context', 'number', 0, 1, '{global,user}', '0.65',
        'Weight of a memory''s words together with those of the turns before and after it.'),
    ('recall_weight_similarity', 'number', 0, 1, '{global,user}', '0.35',
        'Weight of a memory''s own meaning.'),
    ('recall_weight_similarity_context', 'number', 0, 1, '{global,user}', '0.1',
        'Weight of the meaning of the turns before and after a memory.'),
    ('recall_neighbour_share', 'number', 0, 1, '{global,user}', '0.5',
        'How much a word in the turn before or after counts beside one in the turn itself.'),
    ('recall_boost_recency', 'number', 0, 0.1, '{global,user}', '0.04',
        'By which share the score of a memory made just now is raised.'),
    ('recall_boost_importance', 'number', 0, 0.1, '{global,user}', '0.04',
        'By which share the score of a memory of importance 1 is raised, and of importance 0 lowered.'),
    ('recall_boost_access', 'number', 0, 0.1, '{global,user}', '0.02',
        'Towards which share the score of a memory is raised that is used again and again.'),
    ('recall_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'After how many days the boost by recency is half as large.'),
    ('recall_rerank_ms', 'integer', 1, 600000, '{global,user}', '2000',
        'How long a reranker may take in memory_recall, in milliseconds, before the order without it stands.');

-- OFFSET 0 within LATERAL, below, makes of a join a look-up in an index for each candidate. Estimates, which are of all
-- tenants, made of it a hash join over all of a tenant's memories.

create type recall_filter as (kinds text[], metadata jsonb, session_id uuid, as_of timestamptz);
comment on type recall_filter is 'Which memories may be recalled: NULL is any kind, metadata, session or time of validity.';

create type recall_score as (
    memory memory,
    score double precision,
    similarity double precision,
    bm25 double precision,
    bm25_context double precision,
    similarity_context double precision,
    recency double precision,
    access double precision,
    rerank real
);
comment on type recall_score is 'How well a memory matches a query; see recalled_memory.';

create function _recall_admits(filter recall_filter, m memory) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select (filter.kinds is null or m.kind = any (filter.kinds))
        and (filter.metadata is null or m.metadata @> filter.metadata)
        and (filter.session_id is null or m.session_id = filter.session_id)
        and coalesce(m.valid_from <= filter.as_of, true)
        and coalesce(m.valid_to > filter.as_of, true);
end;
comment on function _recall_admits(recall_filter, memory) is
'Whether a memory passes a filter; valid is from valid_from until before valid_to.';

create function _recall_options() returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return (
        with newest as (
            select distinct on (s.key, s.scope) s.key, s.scope, nullif(s.value, 'null') as value
            from mindful.setting s
            where s.tenant = any (array['', (select mindful._tenant())]) and s.key >= 'recall_' and s.key < 'recall`'
                and s.scope <> 'session'
            order by s.key, s.scope, s.id desc
        )
        select jsonb_object_agg(d.key, coalesce(
            (select n.value from newest n where n.key = d.key and n.scope = 'user'),
            (select n.value from newest n where n.key = d.key and n.scope = 'global'), d.initial))
        from mindful.setting_definition d
        where d.key >= 'recall_' and d.key < 'recall`'
    );
end
$$;
comment on function _recall_options() is 'The settings recall_... in force, as setting_get gives them, by one plan that the session keeps.';

create function _recall_hidden(as_of timestamptz) returns integer
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
    return (
        select count(*) from (
            (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.valid_to <= as_of limit 101)
            union all
            (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.valid_from > as_of limit 101)
        ) h
    );
end
$$;
comment on function _recall_hidden(timestamptz) is 'How many memories are not valid at a time, counted up to about a hundred.';

create function _recall_dense(embedding vector, embedder text, candidates integer, filter recall_filter)
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 70
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'strict_order'
set enable_seqscan = off
set hnsw.ef_search = 64
set hnsw.max_scan_tuples = 200000
set jit = off
as $$
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
begin
    if embedding is null then  -- full text alone, then
        return;
    end if;
    -- The tenant as a constant: an index of its own is found by it. Memory is read only where it decides.
    return query execute format('
        select e.id, 1 - (e.embedding operator(%1$s.<=>) $1)
        from mindful.%2$I e %4$s
        where e.tenant = %3$L
        order by e.embedding operator(%1$s.<=>) $1
        limit $2', vector_schema, mindful._embedding_table(embedder), mindful._tenant(),
        case when not filter is null then
            'join mindful.memory m on m.tenant = e.tenant and m.id = e.id and mindful._recall_admits($3, m)'
        end)
    using embedding, candidates, filter;
end
$$;
comment on function _recall_dense(vector, text, integer, recall_filter) is
'The memories whose embeddings are nearest to the query''s, by cosine similarity: exactly, or by the tenant''s HNSW index where it has one.';

create function _recall_terms(query text)
returns table (lexeme text, holders bigint, idf double precision, mean_length double precision)
language plpgsql stable parallel safe security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return query
    select q.lexeme, holder.n, ln(1 + (total.memories - holder.n + 0.5::double precision) / (holder.n + 0.5::double precision)),
        total.mean_length
    from mindful._terms(query) q
    cross join mindful._memory_total() total
    cross join lateral (
        select 32 * count(*) as n from mindful.memory_term t
        where t.tenant = (select mindful._tenant()) and t.lexeme = q.lexeme and hashint8(t.id) & 31 = 0
    ) sampled
    cross join lateral (
        select count(*) as n from mindful.memory_term t
        where sampled.n < 1000 and t.tenant = (select mindful._tenant()) and t.lexeme = q.lexeme
    ) counted
    cross join lateral (select least(greatest(counted.n, sampled.n), total.memories::bigint) as n) holder
    where holder.n > 0
    order by holder.n, q.lexeme
    limit 100;
end
$$;
comment on function _recall_terms(text) is
'The lexemes of a query that the tenant''s memories hold, at most 100, the rarest first: in how many, counted up to about a thousand and estimated from one posting in 32 beyond; the inverse document frequency (that of Lucene); and the mean length of the tenant''s memories.';

create function _recall_lexical(query text, candidates integer, filter recall_filter)
returns table (id bigint, term bigint, idf double precision, frequency double precision)
language plpgsql stable parallel safe security invoker rows 200
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return query
    with term as materialized (
        select row_number() over rarest as term, t.lexeme, t.idf, t.mean_length,
            sum(t.holders) over rarest <= 1000 or row_number() over rarest = 1 as leads
        from mindful._recall_terms(query) t
        window rarest as (order by t.holders, t.lexeme)
    ),
    posting as materialized (
        select p.id, t.term, t.idf, p.frequency / (0.6::double precision + 0.4 * p.length / t.mean_length) as frequency
        from term t
        cross join lateral (
            select h.id, h.frequency, h.length
            from mindful.memory_term h
            left join lateral (
                select true as admitted from mindful.memory m
                where not filter is null and m.tenant = (select mindful._tenant()) and m.id = h.id
                    and mindful._recall_admits(filter, m)
                offset 0
            ) f on true
            where h.tenant = (select mindful._tenant()) and h.lexeme = t.lexeme and (filter is null or f.admitted)
            order by h.id desc
            limit 20000
        ) p
        where t.leads
    ),
    best as materialized (
        select p.id
        from posting p
        group by p.id
        order by sum(p.idf * p.frequency / (p.frequency + 1.2)) desc, p.id desc
        limit candidates
    )
    select p.id, p.term, p.idf, p.frequency
    from best b join posting p on p.id = b.id
    union all
    select p.id, t.term, t.idf, p.frequency / (0.6::double precision + 0.4 * p.length / t.mean_length)
    from best b
    cross join term t
    cross join lateral (
        select h.id, h.frequency, h.length from mindful.memory_term h
        where h.tenant = (select mindful._tenant()) and h.lexeme = t.lexeme and h.id = b.id
        offset 0
    ) p
    where not t.leads;
end
$$;
comment on function _recall_lexical(text, integer, recall_filter) is
'The postings of the memories that best match a query by Okapi BM25, k1 = 1.2 and b = 0.4 (Robertson and Zaragoza 2009), with frequencies divided by 1 - b + b x length / mean length. Candidates come from the rarest lexemes, as many as have 1000 postings in all and at least one (MaxScore, Turtle and Flood 1995, without its guarantee), and from the newest 20000 of a lexeme''s; the common ones are looked up for the candidates. A lexeme counts at most 255 times in a text, as in tsvector.';

create function _recall_scores(
    query text,
    embedding vector,
    embedder text,
    candidates integer,
    pool integer,
    filter recall_filter,
    narrow boolean,
    options jsonb
) returns setof recall_score
language plpgsql stable parallel restricted security invoker rows 20
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    weight_bm25 double precision := options ->> 'recall_weight_bm25';
    weight_bm25_context double precision := options ->> 'recall_weight_bm25_context';
    weight_similarity double precision := options ->> 'recall_weight_similarity';
    weight_similarity_context double precision := options ->> 'recall_weight_similarity_context';
    neighbour_share double precision := options ->> 'recall_neighbour_share';
    early recall_filter := case when narrow then filter end;
begin
    return query
    with dense as materialized (
        select d.id, d.similarity,
            1 - (max(d.similarity) over () - d.similarity)
                / greatest(max(d.similarity) over () - min(d.similarity) over (), 0.1) as share
        from mindful._recall_dense(embedding, embedder, candidates, early) d
    ),
    posting as materialized (
        select l.* from mindful._recall_lexical(query, candidates, early) l
    ),
    -- A place is a turn of a session, or outside of sessions a memory by itself.
    near as materialized (
        select c.id, m.session_id, coalesce(m.turn, m.id) + s.step as place, s.step <> 0 as beside
        from (select d.id from dense d union select l.id from posting l) c
        cross join lateral (
            select m.id, m.session_id, m.turn from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = c.id
            offset 0
        ) m
        join (values (0), (-1), (1)) s (step) on s.step = 0 or m.turn is not null
    ),
    term as (
        select n.session_id, n.place, p.idf, sum(case when n.beside then 0 else p.frequency end) as own,
            sum(case when n.beside then neighbour_share else 1 end * p.frequency) as context
        from posting p join near n using (id)
        group by n.session_id, n.place, p.term, p.idf
    ),
    part as (
        select t.session_id, t.place, t.idf * 2.2 * t.own / (t.own + 1.2) as bm25,
            t.idf * 2.2 * t.context / (t.context + 1.2) as bm25_context,
            null::double precision as similarity, 0::double precision as share, 0::double precision as share_context
        from term t
        union all
        select n.session_id, n.place, 0, 0, case when not n.beside then d.similarity end,
            case when n.beside then 0 else d.share end, case when n.beside then d.share else 0 end
        from dense d join near n using (id)
    ),
    total as (
        select p.session_id, p.place, sum(p.bm25) as bm25, sum(p.bm25_context) as bm25_context,
            max(p.similarity) as similarity, sum(p.share) as share, sum(p.share_context) as share_context
        from part p
        group by p.session_id, p.place
    ),
    best as materialized (
        select t.*,
            weight_bm25 * coalesce(t.bm25 / nullif(max(t.bm25) over (), 0), 0)
            + weight_bm25_context * coalesce(t.bm25_context / nullif(max(t.bm25_context) over (), 0), 0)
            + weight_similarity * t.share
            + weight_similarity_context * t.share_context as score
        from total t
        order by score desc
        limit pool
    )
    select f.memory, b.score, b.similarity, nullif(b.bm25, 0), nullif(b.bm25_context, 0), b.share_context,
        null::double precision, null::double precision, null::real
    from best b
    cross join lateral (
        select m as memory from mindful.memory m
        where m.tenant = (select mindful._tenant()) and b.session_id is null and m.id = b.place
            and mindful._recall_admits(filter, m)
        union all
        select m from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.session_id = b.session_id and m.turn = b.place
            and mindful._recall_admits(filter, m)
    ) f;
end
$$;
comment on function _recall_scores(text, vector, text, integer, integer, recall_filter, boolean, jsonb) is
'The memories with the best weighted sums of what the arms found, boosts not counted. bm25_context is BM25 of a turn and those before and after it as fields of one text (BM25F), whose words count by recall_neighbour_share. Similarities are scaled to [0, 1] over the candidates, or to less where they are all within 0.1; similarity_context is the sum of those of the turns before and after. Candidates alone are seen, so a neighbour that no arm found adds nothing. The arms find only what passes the filter if narrow, else what they found is filtered.';

create function _recall_ranked(
    query text,
    embedding vector,
    embedder text,
    k integer,
    filter recall_filter,
    options jsonb
) returns setof recall_score
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    half_life_days double precision := options ->> 'recall_half_life_days';
    recency_boost double precision := options ->> 'recall_boost_recency';
    importance_boost double precision := options ->> 'recall_boost_importance';
    access_boost double precision := options ->> 'recall_boost_access';
    narrow boolean := filter.kinds is not null or filter.metadata is not null or filter.session_id is not null;
    hidden integer := 0;
begin
    if not narrow then
        hidden := mindful._recall_hidden(filter.as_of);
        narrow := hidden > 100;
        hidden := case when narrow then 0 else hidden end;
    end if;
    return query
    with found as (
        select s.*,
            power(0.5, greatest(extract(epoch from filter.as_of - (s.memory).created_at)::double precision, 0)
                / (86400 * half_life_days)) as age_share,
            coalesce(a.access_count / (a.access_count + 5.0::double precision), 0) as access_share
        from mindful._recall_scores(query, embedding, embedder, 40 + k + hidden, 10 + k + hidden, filter, narrow, options) s
        left join lateral (
            select a.access_count from mindful.memory_access a
            where a.tenant = (select mindful._tenant()) and a.id = (s.memory).id
            offset 0
        ) a on true
    ),
    boosted as (
        select f.*, f.score * (1 + greatest(-0.1, least(0.1, recency_boost * f.age_share
            + importance_boost * (2 * (f.memory).importance - 1) + access_boost * f.access_share))) as raised
        from found f
    ),
    single as (
        select distinct on ((b.memory).content_hash) b.* from boosted b
        order by (b.memory).content_hash, b.raised desc, (b.memory).id desc
    )
    select s.memory, s.raised, s.similarity, s.bm25, s.bm25_context, s.similarity_context, s.age_share, s.access_share, null::real
    from single s
    order by s.raised desc, (s.memory).id desc
    limit k;
end
$$;
comment on function _recall_ranked(text, vector, text, integer, recall_filter, jsonb) is
'The k best memories by score, boosts counted in, each text once, best first. A few that are not valid are made up for by as many candidates more; where they are many, the arms ask memory.';

create type recalled_memory as (
    id bigint,
    content text,
    kind text,
    score double precision,
    similarity double precision,
    bm25 double precision,
    metadata jsonb,
    session_id uuid,
    turn integer,
    role text,
    source text,
    created_at timestamptz,
    bm25_context double precision,
    similarity_context double precision,
    recency double precision,
    importance double precision,
    access double precision,
    rerank real
);
comment on type recalled_memory is 'A memory that matches a query, with every component of its score.';
comment on column recalled_memory.score is 'The weighted sum of the arms, each scaled to at most 1, raised or lowered by at most a tenth; the weights and boosts are settings.';
comment on column recalled_memory.similarity is 'Cosine similarity of the embeddings; NULL where it was not among the nearest.';
comment on column recalled_memory.bm25 is 'Okapi BM25 of the memory''s own words; NULL where none of the query''s was found in it.';
comment on column recalled_memory.bm25_context is 'BM25 of the words of a turn and those beside it; NULL where none of the query''s was found in them.';
comment on column recalled_memory.similarity_context is 'The scaled similarities of the turns before and after, added.';
comment on column recalled_memory.recency is 'From 1, just made, halved every recall_half_life_days.';
comment on column recalled_memory.access is 'n / (n + 5) of a memory that was used n times.';
comment on column recalled_memory.rerank is 'The reranker''s score; NULL where it did not run, or not in time.';

create function _recall_reranked(query text, ranked recall_score[], options jsonb) returns recall_score[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    scores real[] := mindful.llm_rerank(
        query,
        array(select (r.memory).content from unnest(ranked[:50]) with ordinality r order by r.ordinality),
        limit_ms => (options ->> 'recall_rerank_ms')::integer
    );
begin
    if array_position(scores, null) is not null then  -- Scores of some cannot be compared with those of others.
        return ranked;
    end if;
    return array(
        select row(r.memory, r.score, r.similarity, r.bm25, r.bm25_context, r.similarity_context, r.recency, r.access,
            scores[r.ordinality])::mindful.recall_score
        from unnest(ranked) with ordinality r
        order by scores[r.ordinality] desc nulls last, r.ordinality
    );
end
$$;
comment on function _recall_reranked(text, recall_score[], jsonb) is
'The first 50 in the order of the default reranker, which has recall_rerank_ms for it; unchanged if that is not enough.';

create function _recall_nearness(embedder text, ids bigint[]) returns real[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
set jit = off
as $$
declare
    vector_schema text := (select extnamespace::regnamespace from pg_extension where extname = 'vector');
    nearness real[];
begin
    if embedder is null then
        return array_fill(0::real, array[cardinality(ids) ^ 2]::integer[]);
    end if;
    execute format('
        with own as materialized (
            select i.place, e.embedding
            from unnest($1) with ordinality i (id, place)
            left join lateral (
                select e.embedding from mindful.%2$I e where e.tenant = (select mindful._tenant()) and e.id = i.id offset 0
            ) e on true
        )
        select array_agg(coalesce((1 - (a.embedding operator(%1$s.<=>) b.embedding))::real, 0) order by a.place, b.place)
        from own a cross join own b', vector_schema, mindful._embedding_table(embedder))
    into nearness using ids;
    return nearness;
end
$$;
comment on function _recall_nearness(text, bigint[]) is
'The cosine similarities of n memories with one another, n x n in the order of the ids; 0 where there is no embedding.';

create function _recall_diverse(ranked recall_score[], embedder text, diversity real, k integer) returns recall_score[]
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    places integer := cardinality(ranked);
    nearness real[] := mindful._recall_nearness(embedder, array(select (r.memory).id from unnest(ranked) with ordinality r order by r.ordinality));
    relevance double precision[];
    likeness double precision[] := array_fill(0::double precision, array[places]);
    chosen integer[] := '{}';
    best integer;
begin
    select array_agg(coalesce((v.value - v.low) / nullif(v.high - v.low, 0), 1) order by v.place) into relevance
    from (
        select r.ordinality as place, coalesce(r.rerank, r.score) as value,
            min(coalesce(r.rerank, r.score)) over () as low, max(coalesce(r.rerank, r.score)) over () as high
        from unnest(ranked) with ordinality r
    ) v;
    while cardinality(chosen) < least(k, places) loop
        best := (
            select place from generate_series(1, places) place
            where place <> all (chosen)
            order by (1 - diversity) * relevance[place] - diversity * likeness[place] desc, place
            limit 1
        );
        chosen := chosen || best;
        likeness := array(
            select greatest(likeness[place], nearness[(best - 1) * places + place])
            from generate_series(1, places) place order by place
        );
    end loop;
    return array(select ranked[c.place] from unnest(chosen) with ordinality c (place) order by c.ordinality);
end
$$;
comment on function _recall_diverse(recall_score[], text, real, integer) is
'The k that maximal marginal relevance chooses (Carbonell and Goldstein 1998), in its order: each time that with the largest (1 - diversity) x relevance - diversity x similarity to the nearest one chosen.';

create function _memory_recall(
    query text,
    embedding vector,
    embedder text,
    k integer,
    filter recall_filter,
    max_tokens integer default null,
    diversity real default 0,
    rerank boolean default false
) returns setof recalled_memory
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    options jsonb := mindful._recall_options();
    pool integer := greatest(k, case when rerank or diversity > 0 then 50 end);
    ranked mindful.recall_score[] := array(
        select r from mindful._recall_ranked(query, embedding, embedder, pool, filter, options) r
    );
begin
    if rerank then
        ranked := mindful._recall_reranked(query, ranked, options);
    end if;
    if diversity > 0 then
        ranked := mindful._recall_diverse(ranked, embedder, diversity, k);
    end if;
    return query
    select (s.memory).id, (s.memory).content, (s.memory).kind, s.score, s.similarity, s.bm25, (s.memory).metadata,
        (s.memory).session_id, (s.memory).turn, (s.memory).role, (s.memory).source, (s.memory).created_at, s.bm25_context,
        s.similarity_context, s.recency, (s.memory).importance::double precision, s.access, s.rerank
    from (
        select r.*, sum(ceil(char_length((r.memory).content) / 4.0)) over (order by r.ordinality) as tokens
        from unnest(ranked[:k]) with ordinality r
    ) s
    where max_tokens is null or s.tokens <= max_tokens
    order by s.ordinality;
end
$$;
comment on function _memory_recall(text, vector, text, integer, recall_filter, integer, real, boolean) is
'memory_recall for a query that is embedded already (NULL: full text alone).';

create function memory_recall(
    query text,
    k integer default 5,
    kinds text[] default null,
    metadata jsonb default null,
    session_id uuid default null,
    as_of timestamptz default now(),
    max_tokens integer default null,
    diversity real default 0,
    rerank boolean default false
) returns setof recalled_memory
language plpgsql stable parallel restricted security invoker rows 5
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    asked text := mindful._text_argument('query', query);
    wanted integer := mindful._integer_argument('k', k, 1, 1000);
    budget integer := case when max_tokens is not null then mindful._integer_argument('max_tokens', max_tokens, 1, 2147483647) end;
    filter mindful.recall_filter := row(kinds, metadata, session_id, coalesce(as_of, now()));
    embedder text := (select f.name from mindful._model_find('embedder', null) f);
begin
    if diversity is null or not diversity between 0 and 1 then
        perform mindful._raise(case when diversity is null then '22004' else '22023' end,
            format('diversity is %s', coalesce(diversity::text, 'null')), 'It must be between 0 and 1.');
    end if;
    return query
    select r.* from mindful._memory_recall(asked, case when embedder is not null then mindful.llm_embed(asked, embedder) end,
        embedder, wanted, filter, budget, diversity, coalesce(rerank, false)) r;
end
$$;
comment on function memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer, real, boolean) is
'The k memories that best match a query in meaning and in words, those of the turns beside them counted in, best first. kinds, metadata (an object that theirs contains) and session_id say which are asked for; valid at as_of, from valid_from until before valid_to, they are all. Memories with the same text come once. With rerank the default reranker orders the best 50 again, if it can within the setting recall_rerank_ms. diversity, from 0 to 1, passes over what is like something that came before. max_tokens ends the list before it has more, a token taken for four characters: counting them would load the generator. No other model but the embedder runs; works in read-only transactions. Errors: 22004 (NULL), 22023 (empty query, k outside 1 to 1000, max_tokens below 1, diversity outside 0 to 1), 55000 (rerank without a default reranker).';

create function memory_access_insert(ids bigint[]) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with own as materialized (
        select m.id
        from (select distinct i.id from pg_catalog.unnest(ids) i (id)) u
        join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = u.id
    ),
    used as (
        insert into mindful.memory_access as a (id)
        select o.id
        from own o
        -- Under an older snapshot another's count is a conflict; and a row that another holds is left to him.
        where pg_catalog.current_setting('transaction_isolation') = 'read committed'
            and pg_catalog.pg_try_advisory_xact_lock(1835626094, pg_catalog.hashint8(o.id))
        on conflict (tenant, id) do update set access_count = a.access_count + 1, last_accessed_at = excluded.last_accessed_at
        returning 1
    )
    select pg_catalog.count(*) from used;
end;
comment on function memory_access_insert(bigint[]) is
'Counts that memories were used, once each, and returns how many it counted. Nobody waits: a memory that another open transaction is counting is left out, as are those of other tenants, and all under an isolation above read committed.';

revoke execute on function
    llm_rerank(text, text[], text, integer),
    _recall_admits(recall_filter, memory),
    _recall_options(),
    _recall_hidden(timestamptz),
    _recall_dense(vector, text, integer, recall_filter),
    _recall_terms(text),
    _recall_lexical(text, integer, recall_filter),
    _recall_scores(text, vector, text, integer, integer, recall_filter, boolean, jsonb),
    _recall_ranked(text, vector, text, integer, recall_filter, jsonb),
    _recall_reranked(text, recall_score[], jsonb),
    _recall_nearness(text, bigint[]),
    _recall_diverse(recall_score[], text, real, integer),
    _memory_recall(text, vector, text, integer, recall_filter, integer, real, boolean),
    memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer, real, boolean),
    memory_access_insert(bigint[])
from public;
grant execute on function
    llm_rerank(text, text[], text, integer),
    _recall_admits(recall_filter, memory),
    _recall_options(),
    _recall_hidden(timestamptz),
    _recall_dense(vector, text, integer, recall_filter),
    _recall_terms(text),
    _recall_lexical(text, integer, recall_filter),
    _recall_scores(text, vector, text, integer, integer, recall_filter, boolean, jsonb),
    _recall_ranked(text, vector, text, integer, recall_filter, jsonb),
    _recall_reranked(text, recall_score[], jsonb),
    _recall_nearness(text, bigint[]),
    _recall_diverse(recall_score[], text, real, integer),
    _memory_recall(text, vector, text, integer, recall_filter, integer, real, boolean),
    memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer, real, boolean),
    memory_access_insert(bigint[])
to mindful_user;
-- end of recall

-- talk: conversations
alter table setting_definition add column prompt text;
comment on column setting_definition.high is 'The largest number, or the number of characters of a text at most.';
comment on column setting_definition.choices is 'The texts that it can be; NULL: any.';
comment on column setting_definition.prompt is 'What the model is told of a value (%s). Only such settings are changed by the assistant, when a message asks for it.';
create or replace function _setting_check(key text, value jsonb, scope text) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    defined mindful.setting_definition;
    found_type text := jsonb_typeof(value);
begin
    select d.* into defined from mindful.setting_definition d where d.key = _setting_check.key;
    if not found then
        perform mindful._raise('42704', format('there is no setting %s', coalesce(quote_literal(key), 'null')),
            'Settings are listed in mindful.setting_definition.');
    elsif scope is null or scope <> all (defined.scopes) then
        perform mindful._raise('22023', format('setting %s has no scope %s', key, coalesce(quote_literal(scope), 'null')),
            format('Its scopes are %s.', array_to_string(defined.scopes, ', ')));
    elsif value is null or found_type = 'null' then
        return 'null';
    elsif found_type <> (case defined.type when 'integer' then 'number' when 'text' then 'string' else defined.type end)
        or defined.type = 'integer' and (value #>> '{}')::numeric % 1 <> 0
    then
        perform mindful._raise('22023', format('setting %s is %s', key, value), format('It must be of type %s.', defined.type));
    elsif found_type = 'number' and not (value #>> '{}')::numeric between defined.low and defined.high then
        perform mindful._raise('22023', format('setting %s is %s', key, value),
            format('It must be between %s and %s.', defined.low, defined.high));
    elsif value #>> '{}' <> all (defined.choices) then
        perform mindful._raise('22023', format('setting %s is %s', key, value),
            format('It must be one of %s.', array_to_string(defined.choices, ', ')));
    elsif found_type = 'string' and length(value #>> '{}') > defined.high then
        perform mindful._raise('22023', format('setting %s has %s characters', key, length(value #>> '{}')),
            format('It must have %s at most.', defined.high));
    end if;
    return value;
end
$$;
create or replace function _session_turns(session_id uuid, turns integer)
returns table (id bigint, turn integer, role text, content text)
language sql stable parallel safe security invoker
begin atomic
    select m.id, m.turn, m.role, m.content
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _session_turns.session_id and m.turn > 0
    order by m.turn desc
    limit turns;
end;
create or replace function _session_shown_from(session_id uuid, model text) returns integer
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(m.metadata -> 'shown_from') = 'number'
            and (m.metadata -> 'shown_from')::numeric between 1 and 2147483647
            then (m.metadata -> 'shown_from')::integer
    end
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _session_shown_from.session_id
        and m.turn > 0 and m.role = 'assistant' and m.metadata ->> 'model' = _session_shown_from.model
    order by m.turn desc
    limit 1;
end;
drop function session_context(uuid, text, text, integer, integer);

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('core_memory_tokens', 'integer', 0, 1000000, '{global,user,session}', '256',
        'How many tokens of core memories, those whose metadata say {"core": true}, are shown with every message.');

create index memory_core on memory (tenant, id) where metadata -> 'core' = 'true';

create function _core_memory() returns table (id bigint, content text)
language sql stable parallel safe security invoker rows 5
begin atomic
    select m.id, m.content
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.metadata -> 'core' = 'true'
        and (m.valid_from is null or m.valid_from <= pg_catalog.now())
        and (m.valid_to is null or m.valid_to > pg_catalog.now())
    order by m.importance desc, m.id
    limit 50;
end;
comment on function _core_memory() is 'What is shown with every message: memories whose metadata say {"core": true} and that are valid now, the most important first.';

create function _memory_shown(ids bigint[]) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    with free as (
        select a.id from mindful.memory_access a
        where a.tenant = (select mindful._tenant()) and a.id = any (ids)
        for update skip locked
    )
    update mindful.memory_access a
    set access_count = a.access_count + 1, last_accessed_at = pg_catalog.now()
    from free f
    where a.tenant = (select mindful._tenant()) and a.id = f.id;
    insert into mindful.memory_access (id)
    select m.id from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.id = any (ids)
        and not exists (select from mindful.memory_access a where a.tenant = (select mindful._tenant()) and a.id = m.id)
    order by m.id
    on conflict do nothing;
end;
comment on function _memory_shown(bigint[]) is 'Counts that memories were shown; a row that another transaction is counting in is left to it.';

create function session_context(
    session_id uuid,
    query text default null,
    model text default null,
    max_tokens integer default 256,
    memories integer default 3
) returns table (
    part text, role text, content text, tokens integer, memory_id bigint, score double precision, reason text
)
language plpython3u volatile parallel unsafe security invoker cost 10000 rows 10
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.context import session_context
return session_context(session_id, query, model, max_tokens, memories)
$python$;
comment on function session_context(uuid, text, text, integer, integer) is
'What the model would be shown for a message in a session, part by part in its order, with its tokens (those that the chat template adds included, at most) and the reason: the system prompt with the core memories and the summaries of turns that left the window, the recalled memories (they stand in the message), the newest turns that fit the context beside max_tokens of answer, the message. Without a query, the session''s last message if the user wrote it. Errors: 22004, 22023, 42704, 55000 (no message waits), 54000 (the message alone is too long).';

insert into setting_definition (key, type, scopes, initial, description, choices) values
    ('session_summary', 'text', '{global,user,session}', '"extract"',
        'How turns that leave the window are summarized: extract (their telling sentences, after the reply), model (by the generator, when session_summarize is called), or off.',
        '{extract,model,off}');

create function _recap_source(session_id uuid) returns text
language sql immutable parallel safe security invoker
begin atomic
    select 'session ' || session_id::text;
end;
comment on function _recap_source(uuid) is 'The source of a session''s summaries; the source_key says which turns one covers.';

create function _recap_turns(session_id uuid, first integer, last integer)
returns table (id bigint, turn integer, role text, content text, content_hash text)
language sql stable parallel safe security invoker
begin atomic
    select m.id, m.turn, m.role, m.content, m.content_hash
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _recap_turns.session_id
        and m.turn between first and last and m.role <> 'system'
    order by m.turn;
end;
comment on function _recap_turns(uuid, integer, integer) is 'The messages that a summary covers.';

create function _recap_missing(session_id uuid, segment integer, most integer)
returns table (first integer, last integer)
language sql stable parallel safe security invoker
begin atomic
    select s.first, s.first + segment - 1
    from pg_catalog.generate_series(
        1,
        (
            select pg_catalog.max(m.turn) from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.session_id = _recap_missing.session_id
        ) - segment + 1,
        segment
    ) s (first)
    where not exists (
            select from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.source = mindful._recap_source(_recap_missing.session_id)
                and m.source_key = pg_catalog.format('turns %s to %s', s.first, s.first + segment - 1)
        )
        and exists (select from mindful._recap_turns(_recap_missing.session_id, s.first, s.first + segment - 1))
    order by s.first desc
    limit most;
end;
comment on function _recap_missing(uuid, integer, integer) is 'Which full segments of a session have no summary, newest first.';

create function _recap_write(
    session_id uuid,
    first integer,
    last integer,
    content text,
    method text,
    ids bigint[],
    hashes text[],
    quotes text[]
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    summary bigint;
begin
    -- Whoever changes or forgets a turn from here on waits, and then finds the summary and deletes it.
    perform from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _recap_write.session_id
        and m.turn between first and last
    order by m.turn for share;
    if hashes is distinct from (
        select array_agg(t.content_hash order by t.turn) from mindful._recap_turns(session_id, first, last) t
    ) then
        return null;
    end if;
    insert into mindful.memory (kind, content, session_id, source, source_key, metadata)
    values ('summary', _recap_write.content, _recap_write.session_id, mindful._recap_source(_recap_write.session_id),
        format('turns %s to %s', first, last),
        jsonb_build_object('from_turn', first, 'to_turn', last, 'method', method))
    on conflict (tenant, source, source_key) do nothing
    returning id into summary;
    insert into mindful.memory_evidence (id, source_id, quote)
    select summary, e.source_id, e.quote
    from rows from (unnest(ids), unnest(quotes)) e (source_id, quote)
    where summary is not null
    on conflict do nothing;
    return summary;
end
$$;
comment on function _recap_write(uuid, integer, integer, text, text, bigint[], text[], text[]) is
'Stores a summary of turns, with a quote of each, and returns its id; NULL if the turns have changed since they were read, or another has stored one.';

create function _recap_delete(tenant text, session_id uuid, turns integer[]) returns void
language sql volatile parallel unsafe security invoker
begin atomic
    delete from mindful.memory m
    where m.tenant = _recap_delete.tenant and m.session_id = _recap_delete.session_id
        and m.turn is null and m.kind = 'summary'
        and exists (
            select from pg_catalog.unnest(turns) t (turn)
            where pg_catalog.to_jsonb(t.turn) between m.metadata -> 'from_turn' and m.metadata -> 'to_turn'
        );
end;
comment on function _recap_delete(text, uuid, integer[]) is 'Deletes a session''s summaries of some turns.';

create function _recap_forget() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if tg_op = 'DELETE' then
        perform mindful._recap_delete(o.tenant, o.session_id, array_agg(o.turn))
        from old_rows o where o.turn > 0 group by o.tenant, o.session_id;
    else
        perform mindful._recap_delete(o.tenant, o.session_id, array_agg(o.turn))
        from old_rows o
        join new_rows n on n.tenant = o.tenant and n.id = o.id and n.content <> o.content
        where o.turn > 0 group by o.tenant, o.session_id;
    end if;
    return null;
end
$$;
comment on function _recap_forget() is 'Deletes the summaries of turns that were changed or deleted; they are made again from what is left.';
create trigger recap_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement execute function _recap_forget();
create trigger recap_deleted after delete on memory referencing old table as old_rows
    for each statement execute function _recap_forget();

create function _recap_shown(session_id uuid, turn integer)
returns table (id bigint, content text, first text, last text)
language sql stable parallel safe security invoker rows 10
begin atomic
    select m.id, m.content, m.metadata ->> 'from_turn', m.metadata ->> 'to_turn'
    from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.session_id = _recap_shown.session_id
        and m.turn is null and m.kind = 'summary' and m.metadata -> 'from_turn' < pg_catalog.to_jsonb(_recap_shown.turn)
    order by m.metadata -> 'from_turn' desc
    limit 10;
end;
comment on function _recap_shown(uuid, integer) is 'The summaries of a session that cover turns before one, newest first.';

create function session_summarize(session_id uuid, method text default null) returns integer
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.recap import session_summarize
return session_summarize(session_id, method)
$python$;
comment on function session_summarize(uuid, text) is
'Summarizes what a session''s summaries do not cover yet, each ten turns by a memory of kind summary, and returns how many it made. It points at its turns by memory_evidence, is deleted when one of them is changed or deleted, and is made again by the next call, or after the next reply. Method (NULL: the setting session_summary): extract takes the sentences that tell most, in 100 tokens; model has the default generator write it, and where that names or numbers what the turns do not, takes the sentences after all; off makes none. Errors: 22004, 22023 (no such method), 42704 (no such session of yours), 55000 (no default generator), 57014 (cancelled).';

insert into setting_definition (key, type, high, scopes, initial, description, choices, prompt) values
    ('assistant_tone', 'text', null, '{global,user,session}', 'null', 'The tone of answers.',
        '{formal,informal,friendly,neutral}', 'Answer in a %s tone.'),
    ('answer_length', 'text', null, '{global,user,session}', 'null', 'How long answers are.',
        '{short,long}', 'Give %s answers.'),
    ('answer_language', 'text', null, '{global,user,session}', 'null', 'The language of answers.',
        '{Arabic,Chinese,Czech,Danish,Dutch,English,Finnish,French,German,Greek,Hebrew,Hindi,Hungarian,Indonesian,Italian,Japanese,Korean,Norwegian,Persian,Polish,Portuguese,Romanian,Russian,Spanish,Swedish,Thai,Turkish,Ukrainian,Vietnamese}',
        'Answer in %s.'),
    ('user_name', 'text', 60, '{user,session}', 'null', 'What the user wants to be called.', null, 'The user is called %s.');
insert into setting_definition (key, type, scopes, initial, description) values
    ('assistant_changes', 'boolean', '{global,user,session}', 'true',
        'Whether the assistant may change, when a message asks for it, the settings that have a prompt.');

create function _assistant_prompt(session_id uuid, changes jsonb default '{}')
returns table (key text, line text)
language sql stable parallel safe security invoker rows 4
begin atomic
    select d.key,
        pg_catalog.format(d.prompt, case when d.choices is null then v.value::text else v.value #>> '{}' end)
    from mindful.setting_definition d
    cross join lateral (
        select coalesce(changes -> d.key, mindful.setting_get(d.key, _assistant_prompt.session_id)) as value
    ) v
    where d.prompt is not null and v.value <> 'null'
    order by d.key;
end;
comment on function _assistant_prompt(uuid, jsonb) is
'What the system prompt says of the settings in force that the model is told of, changes first that are about to be made; a free text as a JSON string.';

create function _assistant_change(key text, value jsonb, scope text, session_id uuid, reason text) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.setting (scope, session_id, key, value, reason, changed_by)
    select _assistant_change.scope, case when _assistant_change.scope = 'session' then _assistant_change.session_id end,
        d.key, mindful._setting_check(d.key, _assistant_change.value, _assistant_change.scope),
        _assistant_change.reason, 'assistant for ' || current_user
    from mindful.setting_definition d
    where d.key = _assistant_change.key and d.prompt is not null
        and _assistant_change.scope = any (array['user', 'session'])
    returning id;
end;
comment on function _assistant_change(text, jsonb, text, uuid, text) is
'Changes a setting as the user has asked the assistant to, for the reason of these words; nothing but settings that have a prompt.';

create function setting_undo(change_id bigint) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    undone mindful.setting;
    newer bigint;
begin
    select s.* into undone from mindful.setting s
    where s.tenant = any (array['', (select mindful._tenant())]) and s.id = change_id;
    if not found then
        perform mindful._raise('42704', format('there is no change %s of a setting', coalesce(change_id::text, 'null')),
            'Changes are listed in mindful.setting.');
    end if;
    select max(s.id) into newer from mindful.setting s
    where s.tenant = undone.tenant and s.key = undone.key and s.scope = undone.scope
        and s.session_id is not distinct from undone.session_id;
    if newer > undone.id then
        perform mindful._raise('55000', format('setting %s was changed again by change %s', undone.key, newer),
            format('Undo that first, or set it with setting_set(%L, ...).', undone.key));
    end if;
    return mindful.setting_set(
        undone.key,
        coalesce(
            (
                select s.value from mindful.setting s
                where s.tenant = undone.tenant and s.key = undone.key and s.scope = undone.scope
                    and s.session_id is not distinct from undone.session_id and s.id < undone.id
                order by s.id desc limit 1
            ),
            'null'
        ),
        undone.scope, undone.session_id, format('undo of change %s', undone.id)
    );
end
$$;
comment on function setting_undo(bigint) is
'Sets a setting back to what it was in its scope before the change with this id, and returns the value now in force; that is a change too, and can be undone. Errors: 42704 (no such change of yours), 55000 (changed again since), 42501 (global is for mindful_admin).';

insert into setting_definition (key, type, low, high, scopes, initial, description, choices) values
    ('tools', 'text', null, null, '{user,session}', '"off"',
        'Which registered functions a chat may call: none (off), those that only read (read), all (write).', '{off,read,write}'),
    ('tool_calls', 'integer', 1, 8, '{global,user,session}', '1', 'How many functions are called for a message at most.', null),
    ('tool_timeout_ms', 'integer', 10, 600000, '{global,user,session}', '5000', 'How long one call may take.', null),
    ('tool_result_tokens', 'integer', 16, 100000, '{global,user,session}', '256',
        'How much of a function''s result is shown and kept.', null),
    ('tool_threshold', 'number', -1, 1, '{global,user,session}', '0.3',
        'Cosine similarity of a message and a function''s description from which on it is called.', null);

create table tool (
    tenant text not null default _tenant(),
    name text not null check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    function text not null,
    description text not null check (btrim(description) <> '' and length(description) <= 1000),
    json_schema jsonb not null check (jsonb_typeof(json_schema) = 'object'),
    read_only boolean not null default true,
    registered_by text not null default current_user,
    created_at timestamptz not null default now(),
    primary key (tenant, name)
);
comment on table tool is 'Functions that a chat may call for its user, where the setting tools allows it.';
comment on column tool.tenant is 'Whose it is; empty for those that administrators have registered for all.';
comment on column tool.function is 'The function''s name and argument types; a text, so that upgrades and restores do not depend on it.';
comment on column tool.read_only is 'Whether it is called in a transaction that cannot write, and undone.';
alter table tool enable row level security;
alter table tool force row level security;
create policy own on tool using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
create policy read_global on tool for select using (tenant = '');
create policy write_global on tool to mindful_admin using (tenant = '') with check (tenant = '');
select pg_catalog.pg_extension_config_dump('mindful.tool', '');

create function _tool_function(function text)
returns table (
    relation text, arguments jsonb, returns_set boolean, executable boolean, definer boolean, trusted boolean, kind text
)
language sql stable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.format('%I.%I', n.nspname, p.proname),
        (
            select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                'name', a.name, 'type', pg_catalog.format_type(a.type, null), 'pseudo', t.typtype = 'p',
                'required', a.position <= p.pronargs - p.pronargdefaults
            ) order by a.position), '[]')
            from (
                select p.proargnames[u.at] as name, u.type,
                    pg_catalog.row_number() over (order by u.at) as position
                from pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) with ordinality u (type, at)
                where coalesce(p.proargmodes[u.at], 'i') in ('i', 'b', 'v')
            ) a
            join pg_catalog.pg_type t on t.oid = a.type
        ),
        p.proretset,
        pg_catalog.has_function_privilege(p.oid, 'execute')
            and pg_catalog.has_schema_privilege(n.oid, 'usage'),
        p.prosecdef,
        p.proowner = me.oid or owner.rolsuper or not me.rolsuper and p.proowner = (
            select d.datdba from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()
        ),
        case when p.prokind <> 'f' then 'kind' when p.provariadic <> 0 then 'variadic'
            when p.prorettype = any ('{trigger,event_trigger,internal}'::regtype[]) then 'result' end
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    join pg_catalog.pg_roles owner on owner.oid = p.proowner
    join pg_catalog.pg_roles me on me.rolname = current_user
    where p.oid = pg_catalog.to_regprocedure(function);
end;
comment on function _tool_function(text) is
'A function as the caller may use it as a tool: executable with the caller''s rights, definer if it runs with others'', trusted if it belongs to the caller, a superuser or, unless the caller is one, the database''s owner; kind says why it can be no tool at all.';

create function _tool_insert(
    name text, function text, description text, json_schema jsonb, read_only boolean, scope text
) returns text
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.tool (tenant, name, function, description, json_schema, read_only)
    select case scope when 'global' then '' else mindful._tenant() end, name, function, description, json_schema, read_only
    on conflict (tenant, name) do update
    set function = excluded.function, description = excluded.description, json_schema = excluded.json_schema,
        read_only = excluded.read_only, registered_by = current_user, created_at = pg_catalog.now()
    returning name;
end;
comment on function _tool_insert(text, text, text, jsonb, boolean, text) is 'Enters a tool, or replaces it.';

create function tool_register(
    name text,
    function regprocedure,
    description text,
    json_schema jsonb default null,
    read_only boolean default true,
    scope text default 'user'
) returns text
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.tool import tool_register
return tool_register(name, function, description, json_schema, read_only, scope)
$python$;
comment on function tool_register(text, regprocedure, text, jsonb, boolean, text) is
'Lets chats call a function where the setting tools allows it, and returns its name; one of the same name is replaced. The description says in a sentence what it does: a message like it leads to a call. The JSON schema of its arguments, an object whose properties are named as they are, is made of their types where none is given; the generator is held to it. A function is called with the rights of the chat''s user, who needs EXECUTE, and with search_path pg_catalog, mindful, pg_temp; it must belong to that user, a superuser or the database''s owner, and not be SECURITY DEFINER. With read_only it runs in a subtransaction that cannot write and is undone. Scope user registers it for the caller, global for all (administrators). Errors: 22004, 22023 (bad name, description, schema or scope), 42809 (not a function that can be a tool), 42501 (not executable or not trusted; global is for mindful_admin).';

create function tool_unregister(name text, scope text default 'user') returns boolean
language sql volatile parallel unsafe security invoker
begin atomic
    with deleted as (
        delete from mindful.tool t
        where t.tenant = case scope when 'global' then '' else mindful._tenant() end and t.name = tool_unregister.name
        returning 1
    )
    select exists (select from deleted);
end;
comment on function tool_unregister(text, text) is 'Takes a tool back, and tells whether there was one.';

create function _tool_settings(session_id uuid)
returns table (allowed text, calls integer, timeout_ms integer, result_tokens integer, threshold double precision)
language sql stable parallel safe security invoker rows 1
begin atomic
    select mindful.setting_get('tools', session_id) #>> '{}',
        mindful.setting_get('tool_calls', session_id)::integer,
        mindful.setting_get('tool_timeout_ms', session_id)::integer,
        mindful.setting_get('tool_result_tokens', session_id)::integer,
        mindful.setting_get('tool_threshold', session_id)::double precision;
end;
comment on function _tool_settings(uuid) is 'The settings in force that say whether and how tools are called.';

create function _tool_available(writing boolean)
returns table (
    name text, description text, json_schema jsonb, read_only boolean, relation text, arguments jsonb, returns_set boolean
)
language sql stable parallel safe security invoker
begin atomic
    select t.name, t.description, t.json_schema, t.read_only, f.relation, f.arguments, f.returns_set
    from (
        select distinct on (o.name) o.* from mindful.tool o
        where o.tenant = any (array['', (select mindful._tenant())])
        order by o.name, o.tenant desc
    ) t
    cross join lateral mindful._tool_function(t.function) f
    where (t.read_only or writing) and f.executable and f.trusted and not f.definer and f.kind is null
    order by t.name;
end;
comment on function _tool_available(boolean) is
'The tools that the caller may use now, with what is needed to call them; one''s own goes before one of all of the same name.';

create function _tool_run(statement text, arguments jsonb, read_only boolean) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    result jsonb;
begin
    if read_only then
        -- In force until the subtransaction ends that this statement is in; nothing within can lift it.
        perform set_config('transaction_read_only', 'on', true);
    end if;
    execute statement into result using arguments;
    return result;
end
$$;
comment on function _tool_run(text, jsonb, boolean) is 'Runs the statement of a tool''s call, and lets it write nothing with read_only.';
revoke execute on function
    _core_memory(),
    _memory_shown(bigint[]),
    session_context(uuid, text, text, integer, integer),
    _recap_source(uuid),
    _recap_turns(uuid, integer, integer),
    _recap_missing(uuid, integer, integer),
    _recap_write(uuid, integer, integer, text, text, bigint[], text[], text[]),
    _recap_delete(text, uuid, integer[]),
    _recap_forget(),
    _recap_shown(uuid, integer),
    session_summarize(uuid, text),
    _assistant_prompt(uuid, jsonb),
    _assistant_change(text, jsonb, text, uuid, text),
    setting_undo(bigint),
    _tool_function(text),
    _tool_insert(text, text, text, jsonb, boolean, text),
    tool_register(text, regprocedure, text, jsonb, boolean, text),
    tool_unregister(text, text),
    _tool_settings(uuid),
    _tool_available(boolean),
    _tool_run(text, jsonb, boolean)
from public;
grant execute on function
    _core_memory(),
    _memory_shown(bigint[]),
    session_context(uuid, text, text, integer, integer),
    _recap_source(uuid),
    _recap_turns(uuid, integer, integer),
    _recap_missing(uuid, integer, integer),
    _recap_write(uuid, integer, integer, text, text, bigint[], text[], text[]),
    _recap_delete(text, uuid, integer[]),
    _recap_forget(),
    _recap_shown(uuid, integer),
    session_summarize(uuid, text),
    _assistant_prompt(uuid, jsonb),
    _assistant_change(text, jsonb, text, uuid, text),
    setting_undo(bigint),
    _tool_function(text),
    _tool_insert(text, text, text, jsonb, boolean, text),
    tool_register(text, regprocedure, text, jsonb, boolean, text),
    tool_unregister(text, text),
    _tool_settings(uuid),
    _tool_available(boolean),
    _tool_run(text, jsonb, boolean)
to mindful_user;
grant execute on function
    setting_undo(bigint),
    tool_register(text, regprocedure, text, jsonb, boolean, text),
    tool_unregister(text, text),
    _tool_function(text),
    _tool_insert(text, text, text, jsonb, boolean, text)
to mindful_admin;
grant select, insert, update, delete on tool to mindful_user, mindful_admin;

-- document
comment on column memory.source_key is 'Which part of the source this is: a chunk''s hash, a row''s primary key.';

create type document_change as (
    chunks integer,
    inserted integer,
    replaced integer,
    kept integer,
    deleted integer
);
comment on type document_change is
'What became of a document''s chunks: how many it has now, and how many of them are new, have another text under their key, or are as they were; and how many of its last version are gone.';

create function _document_source(source text) returns text
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._text_argument('source', source);
    if octet_length(source) > 1024 then
        perform mindful._raise('54000', format('source has %s bytes, more than 1024', octet_length(source)),
            'Name the document by a file''s path, a URL or a title.');
    elsif exists (select from mindful.attachment a where a.tenant = mindful._tenant() and a.source = _document_source.source)
        or exists (
            select from mindful.memory m
            where m.tenant = mindful._tenant() and m.source = _document_source.source
                and not (m.kind = 'document' and m.metadata ? 'chunk')
        )
    then
        perform mindful._raise('42710', format('source %L is that of other memories', source),
            'Give the document another source: an attached table, or memory_insert, has taken this one.');
    end if;
    return source;
end
$$;
comment on function _document_source(text) is 'Returns a source that a document can have, or raises 22004, 22023, 42710 or 54000.';

create function _document_write(
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
    shared jsonb := mindful._metadata(_document_write.metadata) || jsonb_strip_nulls(jsonb_build_object('title', title));
begin
    perform mindful._document_source(_document_write.source);
    -- Two versions of a document that come at the same time come one after the other.
    perform pg_advisory_xact_lock(hashtextextended(format('%s %s', mindful._tenant(), _document_write.source), 47));
    select count(*) as chunks, count(*) filter (where m.id is null) as inserted,
        count(*) filter (where m.content <> n.content) as replaced, count(*) filter (where m.content = n.content) as kept
    into found
    from rows from (unnest(keys), unnest(contents)) n (key, content)
    left join mindful.memory m on m.tenant = (select mindful._tenant()) and m.source = _document_write.source
        and m.source_key = n.key;
    insert into mindful.memory as m (kind, content, metadata, source, source_key)
    select 'document', n.content, shared || n.place::jsonb, _document_write.source, n.key
    from rows from (unnest(keys), unnest(contents), unnest(places)) with ordinality n (key, content, place, number)
    order by n.number
    on conflict (tenant, source, source_key) do update set content = excluded.content, metadata = excluded.metadata
        where m.content <> excluded.content or m.metadata <> excluded.metadata;
    delete from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.source = _document_write.source
        and not exists (select from unnest(keys) k (key) where k.key = m.source_key);
    get diagnostics deleted = row_count;
    return (found.chunks, found.inserted, found.replaced, found.kept, deleted)::mindful.document_change;
end
$$;
comment on function _document_write(text, text, jsonb, text[], text[], text[]) is
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
from mindful.document import document_insert
return document_insert(content, source, title, format, metadata, max_tokens, overlap)
$python$;
comment on function document_insert(text, text, text, text, jsonb, integer, integer) is
'Remembers a document in chunks, memories of kind document, and says how many there are and what changed. When the same source comes again, chunks with the same text stay the same memories, with their embeddings; new ones are added and those that are gone deleted, all in one transaction. Formats: prose (pages, paragraphs, sentences), markdown (sections), code (definitions), auto (by the ending of source, as is the language of code). A chunk has at most max_tokens tokens of the default embedder (NULL: as many as it reads, at most 240) and shares at most overlap with the one before (NULL: a tenth). Metadata of a chunk: what is given here, title, heading (the path of its section or definition, or its page), chunk (its number), chunks (of how many), start and end (characters of the document from 0). Errors: 22004, 22023 (bad argument), 42710 (source of other memories), 54000 (content over 16 MB, source over 1024 bytes).';

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
    select array_agg(p.key order by p.number), array_agg(p.content order by p.number),
        array_agg((p.metadata || jsonb_build_object('chunk', p.number, 'chunks', p.parts))::text order by p.number)
    into keys, contents, places
    from (
        select e.number, count(*) over () as parts,
            mindful._part_key(e.element ->> 'key', e.number) as key,
            mindful._text_argument(format('content of element %s', e.number), e.element ->> 'content') as content,
            mindful._metadata(e.element -> 'metadata')
                || jsonb_strip_nulls(jsonb_build_object('heading', e.element ->> 'heading')) as metadata
        from mindful._array_elements('parts', parts, '{key,content,heading,metadata}') e
    ) p;
    if keys is null then
        perform mindful._raise('22023', 'parts is empty', 'Give at least one; document_forget forgets a document.');
    end if;
    select k.key into repeated from unnest(keys) k (key) group by k.key having count(*) > 1 limit 1;
    if found then
        perform mindful._raise('22023', format('parts have the key %L more than once', repeated), 'Give each part a key of its own.');
    end if;
    return mindful._document_write(source, title, metadata, keys, contents, places);
end
$$;
comment on function document_insert_parts(text, jsonb, text, jsonb) is
'Remembers a document in parts of the caller''s own making, such as the operations of an API: an array of objects with key, content and, if wanted, heading and metadata. When the same source comes again, a part is known by its key: it stays the same memory, whose text is replaced where it changed; parts that are not given are deleted. Returns what document_insert does. A part longer than the default embedder reads is found by its meaning only as far as that goes. Errors: 22004, 22023 (bad element, repeated key), 42710 (source of other memories), 54000 (text over 262144 bytes, key or source over 1024).';

create function _part_key(key text, number bigint) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.octet_length(key) > 1024
            then mindful._raise('54000', pg_catalog.format('key of element %s has %s bytes, more than 1024', number,
                pg_catalog.octet_length(key)), 'Give it a shorter one.')::text
        else mindful._text_argument(pg_catalog.format('key of element %s', number), key)
    end;
end;
comment on function _part_key(text, bigint) is 'Returns a key that a part of a document can have, or raises 22004, 22023 or 54000.';

create function document_forget(source text) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    forgotten bigint;
begin
    delete from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.source = document_forget.source and m.kind = 'document'
        and m.metadata ? 'chunk';
    get diagnostics forgotten = row_count;
    if forgotten = 0 then
        perform mindful._raise('42704', format('there is no document %s', coalesce(quote_literal(source), 'null')),
            'Your documents are listed in mindful.document.');
    end if;
    return forgotten;
end
$$;
comment on function document_forget(text) is
'Forgets a document, and returns how many chunks it had. Error 42704: no such document.';

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
    where d.tenant = (select mindful._tenant()) and (document_list.source is null or d.source = document_list.source)
    order by d.source;
end;
comment on function document_list(text) is 'The caller''s documents by source, or the one of a source, as in the view document.';

revoke execute on function
    _document_source(text),
    _document_write(text, text, jsonb, text[], text[], text[]),
    document_insert(text, text, text, text, jsonb, integer, integer),
    document_insert_parts(text, jsonb, text, jsonb),
    _part_key(text, bigint),
    document_forget(text),
    document_list(text)
from public;
grant execute on function
    _document_source(text),
    _document_write(text, text, jsonb, text[], text[], text[]),
    document_insert(text, text, text, text, jsonb, integer, integer),
    document_insert_parts(text, jsonb, text, jsonb),
    _part_key(text, bigint),
    document_forget(text),
    document_list(text)
to mindful_user;
grant select on document to mindful_user;

-- replay
insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('consolidation_extractor', 'text', null, null, '{global,user}', '"rule"',
        'What draws facts from texts: rule, which needs no model, or model, the default generator.'),
    ('consolidation_memories', 'integer', 1, 1000000, '{global,user}', '1000',
        'How many texts one call of memory_consolidate reads at most.'),
    ('knowledge_evidence', 'integer', 1, 1000, '{global,user}', '2', 'Sources that make information knowledge.'),
    ('knowledge_accesses', 'integer', 1, 1000000, '{global,user}', '3', 'Uses that make information knowledge.'),
    ('knowledge_confidence', 'number', 0, 1, '{global,user}', '0.8', 'Least confidence of knowledge.'),
    ('wisdom_evidence', 'integer', 1, 1000, '{global,user}', '4', 'Sources that wisdom needs.'),
    ('wisdom_accesses', 'integer', 1, 1000000, '{global,user}', '8', 'Uses that wisdom needs.'),
    ('wisdom_confidence', 'number', 0, 1, '{global,user}', '0.95', 'Least confidence of wisdom.'),
    ('decay_after_days', 'integer', 1, 36500, '{global,user}', '30', 'Days without a use after which a fact''s importance fades.'),
    ('decay_half_life_days', 'integer', 1, 36500, '{global,user}', '90', 'Days in which a fading importance halves.');

create table consolidation (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    type text not null check (type in ('extract', 'replay')),
    status text not null default 'pending' check (status in ('pending', 'running', 'completed', 'failed')),
    model text,
    request jsonb not null default '{}',
    memories_processed integer not null default 0,
    pairs_generated integer not null default 0,
    outputs jsonb not null default '{}',
    error text,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    withdrawn integer not null default 0,
    primary key (tenant, id),
    check ((status in ('completed', 'failed')) = (finished_at is not null)),
    check ((status = 'failed') = (error is not null))
);
create unique index consolidation_open on consolidation (tenant, type) where status in ('pending', 'running');
comment on table consolidation is 'Runs that make facts of texts (extract) and training samples of facts (replay). A run that has been cut by its limits, or whose connection was lost, stays running and is taken up by the next call.';
comment on column consolidation.model is 'The generator that facts were drawn with, or that samples are for; NULL for rules.';
comment on column consolidation.request is 'What was asked for.';
comment on column consolidation.withdrawn is 'Samples that forgetting has taken back: exports that were made before are no longer valid.';
comment on column consolidation.outputs is 'Counts of what came of it, and of what was refused by reason.';

-- By its text and not by a watermark: ids are given before their rows are committed, so a watermark would pass some by.
create table memory_extraction (
    tenant text not null default _tenant(),
    id bigint not null,
    content_hash text not null,
    extractor text not null check (extractor in ('rule', 'model')),
    consolidation_id bigint not null,
    facts integer not null,
    primary key (tenant, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade
);
create index on memory_extraction (tenant, consolidation_id);
comment on table memory_extraction is 'Which texts have been read for facts, and in which wording: a changed text is read again.';

create table memory_statement (
    tenant text not null default _tenant(),
    id bigint not null,
    subject text not null,
    relation text not null,
    object text not null,
    extractor text not null check (extractor in ('rule', 'model')),
    model text,
    prior real not null check (prior between 0 and 1),
    consolidation_id bigint not null,
    primary key (tenant, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade,
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade
);
create index on memory_statement (tenant, subject, relation);
create index on memory_statement (tenant, consolidation_id);
comment on table memory_statement is 'What a fact drawn from a text says, in parts, and what drew it.';
comment on column memory_statement.prior is 'Confidence of one source; n sources give 1 - (1 - prior) * 0.5 ^ (n - 1), at most 0.99.';

create table memory_entity (
    tenant text not null default _tenant(),
    entity text not null,
    id bigint not null,
    primary key (tenant, entity, id),
    foreign key (tenant, id) references memory (tenant, id) on delete cascade
);
create index on memory_entity (tenant, id);
-- Statistics are of all tenants, and estimates would tell which words others use.
alter table memory_entity alter column entity set statistics 0;
alter table memory_statement alter column subject set statistics 0;
comment on table memory_entity is 'Whom and what facts are about, in lower case.';

do $do$
declare
    relation text;
begin
    foreach relation in array array['consolidation', 'memory_extraction', 'memory_statement', 'memory_entity'] loop
        execute pg_catalog.format('alter table mindful.%I enable row level security', relation);
        execute pg_catalog.format('alter table mindful.%I force row level security', relation);
        execute pg_catalog.format($$create policy own on mindful.%I using (tenant = (select mindful._tenant()))
            with check (tenant = (select mindful._tenant()))$$, relation);
        perform pg_catalog.pg_extension_config_dump('mindful.' || relation, '');
    end loop;
end
$do$;
select pg_catalog.pg_extension_config_dump('mindful.consolidation_id_seq', '');

create function _evidence_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    delete from mindful.memory m
    using old_rows o
    where m.tenant = o.tenant and m.id = o.id
        and exists (select from mindful.memory_statement s where s.tenant = o.tenant and s.id = o.id)
        and not exists (select from mindful.memory_evidence e where e.tenant = o.tenant and e.id = o.id);
    update mindful.memory m
    set confidence = mindful._evidence_confidence(m.tenant, m.id)
    from (select distinct tenant, id from old_rows) o
    join mindful.memory_statement s on s.tenant = o.tenant and s.id = o.id
    where m.tenant = o.tenant and m.id = o.id;
    return null;
end
$$;
comment on function _evidence_lost() is 'Forgets facts that were drawn from texts all of which are forgotten, and believes less in those that have lost some.';

create function _evidence_confidence(tenant text, id bigint) returns real
language sql stable parallel safe security invoker
begin atomic
    select least(0.99, 1 - (1 - s.prior) * 0.5 ^ (greatest(e.sources, 1) - 1))::real
    from mindful.memory_statement s,
        lateral (
            select pg_catalog.count(distinct v.source_id) as sources
            from mindful.memory_evidence v
            where v.tenant = s.tenant and v.id = s.id
        ) e
    where s.tenant = _evidence_confidence.tenant and s.id = _evidence_confidence.id;
end;
comment on function _evidence_confidence(text, bigint) is
'Confidence of a fact by the number of its sources: each further one halves the doubt, 1 - (1 - prior) * 0.5 ^ (n - 1), at most 0.99.';

create trigger evidence_lost after delete on memory_evidence referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _evidence_lost();

-- Made with data, as only that can be refreshed beside readers; no role but readers may see it, as it has no row security.
create materialized view consolidation_summary as
select tenant, created_at::date as day, type, status, coalesce(model, '') as model, count(*) as runs,
    sum(memories_processed) as memories_processed, sum(pairs_generated) as pairs_generated,
    sum((outputs ->> 'facts')::bigint) as facts, sum((outputs ->> 'contradicted')::bigint) as contradicted,
    max(finished_at) as last_finished_at
from consolidation
group by tenant, created_at::date, type, status, coalesce(model, '');
create unique index on consolidation_summary (tenant, day, type, status, model);
comment on materialized view consolidation_summary is 'Runs of all tenants by day, type, status and model, for mindful_reader; refreshed at the end of each run, or with the next if another is at it.';

create function _consolidation_summary_refresh() returns void
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set lock_timeout = '200ms'
as $$
begin
    refresh materialized view concurrently mindful.consolidation_summary;
exception when lock_not_available then
    null;
end
$$;
comment on function _consolidation_summary_refresh() is 'Brings consolidation_summary up to date, unless another run holds it.';

create type consolidation_detail as (
    id bigint,
    status text,
    extractor text,
    memories_processed integer,
    remaining bigint,
    facts integer,
    strengthened integer,
    refined integer,
    contradicted integer,
    links integer,
    promoted integer,
    decayed integer,
    rejected jsonb,
    error text
);
comment on type consolidation_detail is 'What a run has read, what came of it, what was rejected by reason, and how many texts are left.';

create function _consolidation_pending(since timestamptz, kinds text[] default '{message,document}')
returns table (id bigint)
language sql stable parallel safe security invoker
begin atomic
    select m.id
    from mindful.memory m
    left join mindful.memory_extraction x on x.tenant = m.tenant and x.id = m.id
    where m.tenant = (select mindful._tenant()) and m.kind = any (kinds)
        and (since is null or m.created_at >= since)
        and (x.id is null or x.content_hash <> m.content_hash)
    order by m.created_at, m.id;
end;
comment on function _consolidation_pending(timestamptz, text[]) is 'Messages and documents that have not been read for facts as they are now, oldest first.';

create function _consolidation_lock() returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not pg_try_advisory_xact_lock(hashtextextended('mindful.consolidation ' || mindful._tenant(), 0)) then
        perform mindful._raise('55P03', 'a run is going on for this tenant', 'Wait until it has ended; mindful.consolidation tells.');
    end if;
end
$$;
comment on function _consolidation_lock() is 'Lets one run at a time go on for a tenant, until the transaction ends; error 55P03.';

create function _consolidation_open(type text, model text, request jsonb) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    insert into mindful.consolidation (type, status, model, request)
    values (type, 'running', model, request)
    on conflict (tenant, type) where status in ('pending', 'running')
        do update set status = 'running', model = excluded.model, request = excluded.request
    returning id;
end;
comment on function _consolidation_open(text, text, jsonb) is 'Takes up the open run of a type, or begins one.';

create function _counts_add(counts jsonb, more jsonb) returns jsonb
language sql immutable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.jsonb_object_agg(key, case
        when pg_catalog.jsonb_typeof(coalesce(a.value, b.value)) = 'object'
            then (select coalesce(pg_catalog.jsonb_object_agg(inner_key, coalesce(c.value::bigint, 0) + coalesce(d.value::bigint, 0)), '{}')
                from pg_catalog.jsonb_each_text(coalesce(a.value, '{}')) c (inner_key, value)
                full join pg_catalog.jsonb_each_text(coalesce(b.value, '{}')) d (inner_key, value) using (inner_key))
        else pg_catalog.to_jsonb(coalesce((a.value #>> '{}')::bigint, 0) + coalesce((b.value #>> '{}')::bigint, 0))
    end), '{}')
    from pg_catalog.jsonb_each(counts) a (key, value)
    full join pg_catalog.jsonb_each(more) b (key, value) using (key);
end;
comment on function _counts_add(jsonb, jsonb) is 'Adds two objects of counts, which may hold objects of counts, key by key.';

create function _consolidate(run bigint, since timestamptz, extractor text, model text, memories integer, seconds integer)
returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.consolidation import consolidate
return consolidate(run, since, extractor, model, memories, seconds)
$python$;
comment on function _consolidate(bigint, timestamptz, text, text, integer, integer) is
'Reads texts for facts, enters what is new, strengthens what is known, closes what is contradicted, links; returns counts.';

create function _link_strengthen(since timestamptz) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with used as (
        update mindful.memory_link l
        set weight = l.weight + (1 - l.weight) * 0.1
        from mindful.memory_access a, mindful.memory_access b
        where l.tenant = (select mindful._tenant()) and l.weight < 0.999
            and a.tenant = l.tenant and a.id = l.source_id and a.last_accessed_at > since
            and b.tenant = l.tenant and b.id = l.target_id and b.last_accessed_at > since
        returning 1
    )
    select pg_catalog.count(*) from used;
end;
comment on function _link_strengthen(timestamptz) is 'Takes a tenth of what its weight lacks to 1 from each link both ends of which were used since then.';

create function _memory_decay(days integer) returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with faded as (
        update mindful.memory m
        set importance = greatest(0.05, m.importance * 0.5 ^ (days / (mindful.setting_get('decay_half_life_days') #>> '{}')::double precision))
        from mindful.memory_statement s
        left join mindful.memory_access a on a.tenant = s.tenant and a.id = s.id
        where days > 0 and s.tenant = (select mindful._tenant()) and m.tenant = s.tenant and m.id = s.id and m.importance > 0.05
            and greatest(a.last_accessed_at, m.created_at)
                < pg_catalog.now() - pg_catalog.make_interval(days => (mindful.setting_get('decay_after_days') #>> '{}')::integer)
        returning 1
    )
    select pg_catalog.count(*) from faded;
end;
comment on function _memory_decay(integer) is 'Lets the importance of drawn facts that nobody has used for decay_after_days fade by that many days, down to 0.05; the half-life is decay_half_life_days.';

create function _memory_promote() returns bigint
language sql volatile parallel unsafe security invoker
begin atomic
    with threshold as (
        select pg_catalog.jsonb_object_agg(d.key, mindful.setting_get(d.key)) as t
        from mindful.setting_definition d
        where d.key like any (array['knowledge\_%', 'wisdom\_%'])
    ),
    measured as (
        select m.id, m.level, m.confidence, coalesce(a.access_count, 0) as accesses,
            (select pg_catalog.count(distinct e.source_id) from mindful.memory_evidence e
                where e.tenant = m.tenant and e.id = m.id) as sources
        from mindful.memory_statement s
        join mindful.memory m on m.tenant = s.tenant and m.id = s.id
        left join mindful.memory_access a on a.tenant = m.tenant and a.id = m.id
        where s.tenant = (select mindful._tenant()) and (m.valid_to is null or m.valid_to > pg_catalog.now())
    ),
    earned as (
        select id, level as held, case
            when sources >= (t ->> 'wisdom_evidence')::integer and accesses >= (t ->> 'wisdom_accesses')::integer
                and confidence >= (t ->> 'wisdom_confidence')::real then 'wisdom'
            when (sources >= (t ->> 'knowledge_evidence')::integer or accesses >= (t ->> 'knowledge_accesses')::integer)
                and confidence >= (t ->> 'knowledge_confidence')::real then 'knowledge'
            when sources > 0 then 'information'
            else 'data'
        end as level
        from measured, threshold
    ),
    promoted as (
        update mindful.memory m set level = e.level
        from earned e
        where m.tenant = (select mindful._tenant()) and m.id = e.id
            and pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], e.level)
                > pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], e.held)
        returning 1
    )
    select pg_catalog.count(*) from promoted;
end;
comment on function _memory_promote() is
'Raises drawn facts that are valid to the level they have earned: information by a source; knowledge by knowledge_evidence sources or knowledge_accesses uses, and knowledge_confidence; wisdom by wisdom_evidence, wisdom_accesses and wisdom_confidence together. Nothing sinks.';

create function _consolidation_finish(run bigint) returns jsonb
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    last timestamptz;
    faded timestamptz;
begin
    select max(c.finished_at), max(c.finished_at) filter (where c.outputs ? 'days_decayed') into last, faded
    from mindful.consolidation c
    where c.tenant = (select mindful._tenant()) and c.type = 'extract' and c.status = 'completed' and c.id <> run;
    return jsonb_build_object(
        'links_strengthened', mindful._link_strengthen(coalesce(last, '-infinity')),
        'decayed', mindful._memory_decay(floor(extract(epoch from now() - faded) / 86400)::integer),
        'promoted', mindful._memory_promote())
        || case when faded is null or now() - faded >= interval '1 day'
            then jsonb_build_object('days_decayed', coalesce(floor(extract(epoch from now() - faded) / 86400), 0))
            else '{}' end;
end
$$;
comment on function _consolidation_finish(bigint) is 'What a run does when all texts are read: strengthens used links, lets unused facts fade, promotes. Fading counts whole days since it was last done.';

create function _consolidation_close(run bigint, counts jsonb, failure text, done boolean) returns consolidation
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    closed mindful.consolidation;
begin
    update mindful.consolidation c
    set status = case when failure is not null then 'failed' when done then 'completed' else 'running' end,
        memories_processed = c.memories_processed + coalesce((counts ->> 'memories_processed')::integer, 0),
        pairs_generated = c.pairs_generated + coalesce((counts ->> 'pairs_generated')::integer, 0),
        outputs = mindful._counts_add(c.outputs, counts - '{memories_processed,pairs_generated}'::text[]),
        error = failure,
        finished_at = case when done or failure is not null then clock_timestamp() end
    where c.tenant = (select mindful._tenant()) and c.id = run
    returning c.* into closed;
    if closed.finished_at is not null then
        -- Any role may listen, so neither tenant nor content is told.
        perform mindful._consolidation_summary_refresh();
        perform pg_notify('mindful_consolidation', jsonb_build_object('id', closed.id, 'status', closed.status)::text);
    end if;
    return closed;
end
$$;
comment on function _consolidation_close(bigint, jsonb, text, boolean) is 'Adds a call''s counts to its run, ends the run where it is done or has failed, and then notifies the channel mindful_consolidation.';

create function memory_consolidate(
    since timestamptz default null,
    limits jsonb default '{}',
    extractor text default null,
    model text default null
) returns consolidation_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen text := coalesce(extractor, mindful.setting_get('consolidation_extractor') #>> '{}');
    texts integer := mindful._limit(limits, 'memories', (mindful.setting_get('consolidation_memories') #>> '{}')::integer, 1000000);
    seconds integer := mindful._limit(limits, 'seconds', null, 86400);
    run bigint;
    counts jsonb := '{}';
    remaining bigint;
    failure text;
    closed mindful.consolidation;
begin
    if chosen not in ('rule', 'model') then
        perform mindful._raise('22023', format('extractor is %L', chosen), 'Extractors are rule and model.');
    end if;
    perform mindful._consolidation_lock();
    run := mindful._consolidation_open('extract', model, jsonb_strip_nulls(jsonb_build_object('since', since, 'limits', limits, 'extractor', chosen)));
    begin
        counts := mindful._consolidate(run, since, chosen, model, texts, seconds);
        remaining := (select count(*) from mindful._consolidation_pending(since));
        if remaining = 0 then
            counts := counts || mindful._consolidation_finish(run);
        end if;
    exception when others then  -- a cancel is not among them
        failure := sqlstate || ': ' || sqlerrm;
        counts := '{}';
    end;
    closed := mindful._consolidation_close(run, counts, failure, remaining = 0);
    return (closed.id, closed.status, chosen, closed.memories_processed,
        coalesce(remaining, (select count(*) from mindful._consolidation_pending(since))),
        (closed.outputs ->> 'facts')::integer, (closed.outputs ->> 'strengthened')::integer,
        (closed.outputs ->> 'refined')::integer, (closed.outputs ->> 'contradicted')::integer,
        (closed.outputs ->> 'links')::integer, (closed.outputs ->> 'promoted')::integer,
        (closed.outputs ->> 'decayed')::integer, closed.outputs -> 'rejected', closed.error)::mindful.consolidation_detail;
end
$$;
comment on function memory_consolidate(timestamptz, jsonb, text, text) is
'Draws facts from messages and documents that were not read yet (since: only those created since then), oldest first: each fact is a memory of kind fact that quotes its sources in memory_evidence. What is known already is strengthened, what it contradicts gets valid_to and superseded_by, what belongs together is linked. System prompts, generated answers, prompts'' templates, and what repeats them are rejected and counted. Limits: {"memories": n, "seconds": n}; a run that they cut stays running, and the next call goes on with it. Once nothing is left, used links are strengthened, unused facts fade, and facts are promoted from data to information, knowledge and wisdom. A second call changes nothing. Extractors: rule (English; no model), model (a generator; NULL: the default one). An error is stored with the run, which then failed, and returned. Errors: 22023 (limits, extractor), 55P03 (a run is going on).';

create function _limit(limits jsonb, key text, initial integer, high integer) returns integer
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if limits is null or jsonb_typeof(limits) <> 'object' or limits - '{memories,seconds}'::text[] <> '{}' then
        perform mindful._raise('22023', 'limits is no object of limits', 'Limits are memories and seconds, as in {"memories": 500}.');
    elsif not limits ? key then
        return initial;
    elsif jsonb_typeof(limits -> key) <> 'number' or (limits ->> key)::numeric not between 1 and high
        or (limits ->> key)::numeric % 1 <> 0
    then
        perform mindful._raise('22023', format('limit %s is %s', key, limits -> key), format('It must be a whole number between 1 and %s.', high));
    end if;
    return (limits ->> key)::numeric::integer;
end
$$;
comment on function _limit(jsonb, text, integer, integer) is 'One of the limits of a run, or raises 22023.';

alter table model
    add column prompt_format text check (prompt_format in ('alpaca', 'chatml')),
    add column max_sequence_length integer check (max_sequence_length between 16 and 1048576),
    add column specialisation text not null default 'general_reasoning'
        check (specialisation in ('general_reasoning', 'code_generation')),
    add column lora jsonb not null default '{}' check (jsonb_typeof(lora) = 'object'),
    add column samples_total bigint not null default 0,
    add column trained_at timestamptz;
comment on column model.prompt_format is 'How a training sample is laid out for the model; NULL: it is not to be trained.';
comment on column model.max_sequence_length is 'Tokens of a training sample at most; NULL is the context''s length.';
comment on column model.specialisation is 'What the model is for, which decides the forms of its training samples.';
comment on column model.lora is 'Parameters of LoRA training that are other than the command''s defaults: rank, alpha, dropout, epochs, learning_rate, batch.';
comment on column model.samples_total is 'Samples that adapters of the model were trained on, in all.';
comment on column model.trained_at is 'When an adapter of the model was trained last.';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('training_consent', 'boolean', null, null, '{user}', 'false',
        'Whether what the user has told may become training samples.'),
    ('replay_level', 'text', null, null, '{global,user}', '"knowledge"', 'Least level of facts that become training samples.'),
    ('replay_confidence', 'number', 0, 1, '{global,user}', '0.7', 'Least confidence of facts that become training samples.'),
    ('replay_accesses', 'integer', 0, 1000000, '{global,user}', '0', 'Least uses of facts that become training samples.');

create table training_sample (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    consolidation_id bigint not null,
    model text not null,
    form text not null check (form in ('recall', 'explain', 'factors', 'apply', 'decide', 'abstain')),
    instruction text,
    input text,
    output text,
    source_id bigint not null,
    neighbor_ids bigint[] not null default '{}',
    confidence real not null,
    split text not null check (split in ('train', 'validation')),
    refused text[] not null default '{}',
    created_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, consolidation_id) references consolidation (tenant, id) on delete cascade,
    foreign key (tenant, source_id) references memory (tenant, id) on delete cascade,
    check (refused <> '{}' or instruction is not null and output is not null)
);
create index on training_sample (tenant, consolidation_id);
create index on training_sample (tenant, source_id);
comment on table training_sample is 'Instruction pairs made of facts, and those that were refused with the reasons why.';
comment on column training_sample.source_id is 'The fact that the pair is about.';
comment on column training_sample.neighbor_ids is 'Other facts that it tells of; with any of them forgotten the pair goes too.';
comment on column training_sample.split is 'By the source of the fact: what is held out was told in other texts than what is trained on.';
comment on column training_sample.refused is 'Gates that the pair did not pass: no_consent, no_evidence, not_valid, confidence, volatile, secret, personal, duplicate, mixed_split (it would tell of held-out facts in training), too_long. The texts of secret and personal ones are not kept.';

create table training_sample_memory (
    tenant text not null default _tenant(),
    sample_id bigint not null,
    memory_id bigint not null,
    primary key (tenant, sample_id, memory_id),
    foreign key (tenant, sample_id) references training_sample (tenant, id) on delete cascade,
    foreign key (tenant, memory_id) references memory (tenant, id) on delete cascade
);
create index on training_sample_memory (tenant, memory_id);
comment on table training_sample_memory is 'Every memory that a pair tells of.';

do $do$
declare
    relation text;
begin
    foreach relation in array array['training_sample', 'training_sample_memory'] loop
        execute pg_catalog.format('alter table mindful.%I enable row level security', relation);
        execute pg_catalog.format('alter table mindful.%I force row level security', relation);
        execute pg_catalog.format($$create policy own on mindful.%I using (tenant = (select mindful._tenant()))
            with check (tenant = (select mindful._tenant()))$$, relation);
        perform pg_catalog.pg_extension_config_dump('mindful.' || relation, '');
    end loop;
end
$do$;
select pg_catalog.pg_extension_config_dump('mindful.training_sample_id_seq', '');

create function _sample_memory_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    delete from mindful.training_sample s using old_rows o where s.tenant = o.tenant and s.id = o.sample_id;
    return null;
end
$$;
comment on function _sample_memory_lost() is 'Forgets training samples that tell of a forgotten memory.';

create function _sample_lost() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    update mindful.consolidation c set withdrawn = c.withdrawn + o.samples
    from (select tenant, consolidation_id, count(*) as samples from old_rows where refused = '{}' group by 1, 2) o
    where c.tenant = o.tenant and c.id = o.consolidation_id;
    return null;
end
$$;
comment on function _sample_lost() is 'Counts withdrawn samples with their run.';

create trigger sample_lost after delete on training_sample referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _sample_lost();
create trigger sample_memory_lost after delete on training_sample_memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _sample_memory_lost();

create function model_training_set(
    name text,
    prompt_format text,
    max_sequence_length integer default null,
    specialisation text default 'general_reasoning',
    lora jsonb default '{}'
) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if prompt_format is not null and prompt_format not in ('alpaca', 'chatml') then
        perform mindful._raise('22023', format('prompt_format is %L', prompt_format), 'Formats are alpaca and chatml.');
    elsif specialisation is null or specialisation not in ('general_reasoning', 'code_generation') then
        perform mindful._raise('22023', format('specialisation is %L', specialisation), 'Specialisations are general_reasoning and code_generation.');
    elsif lora is null or jsonb_typeof(lora) <> 'object' or lora - '{rank,alpha,dropout,epochs,learning_rate,batch}'::text[] <> '{}'
        or exists (select from jsonb_each(lora) e where jsonb_typeof(e.value) <> 'number')
    then
        perform mindful._raise('22023', 'lora is no object of LoRA parameters', 'Parameters are the numbers rank, alpha, dropout, epochs, learning_rate and batch.');
    elsif max_sequence_length not between 16 and 1048576 then
        perform mindful._raise('22023', format('max_sequence_length is %s', max_sequence_length), 'It must be between 16 and 1048576.');
    end if;
    update mindful.model m
    set prompt_format = model_training_set.prompt_format, max_sequence_length = model_training_set.max_sequence_length,
        specialisation = model_training_set.specialisation, lora = model_training_set.lora
    where m.name = model_training_set.name and m.kind = 'generator';
    if not found then
        perform mindful._raise('42704', format('there is no generator %s', coalesce(quote_literal(name), 'null')),
            'The models that you may use are listed in mindful.model.');
    end if;
end
$$;
comment on function model_training_set(text, text, integer, text, jsonb) is
'Says how a generator is trained: the layout of its samples (alpaca, chatml; NULL: not at all), their most tokens (NULL: its context), what it is for (general_reasoning, code_generation), and LoRA parameters. For administrators. Errors: 22023, 42704.';

create type replay_detail as (
    id bigint,
    status text,
    model text,
    facts integer,
    accepted integer,
    refused jsonb,
    below jsonb,
    error text
);
comment on type replay_detail is 'A run''s facts that passed its thresholds, the pairs made of them, the pairs refused by reason, and the facts below each threshold.';

create function _replay_filter(filter jsonb) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    found_filter jsonb := jsonb_build_object('level', mindful.setting_get('replay_level'),
        'confidence', mindful.setting_get('replay_confidence'), 'accesses', mindful.setting_get('replay_accesses'),
        'facts', 1000, 'since', null) || coalesce(filter, '{}');
begin
    if jsonb_typeof(coalesce(filter, '{}')) <> 'object' or found_filter - '{level,confidence,accesses,facts,since}'::text[] <> '{}' then
        perform mindful._raise('22023', 'filter is no object of thresholds', 'They are level, confidence, accesses, facts (the most of them) and since.');
    elsif coalesce(found_filter ->> 'level', '') <> all (array['data', 'information', 'knowledge', 'wisdom']) then
        perform mindful._raise('22023', format('level is %L', found_filter ->> 'level'), 'Levels are data, information, knowledge and wisdom.');
    elsif jsonb_typeof(found_filter -> 'confidence') <> 'number' or jsonb_typeof(found_filter -> 'accesses') <> 'number'
        or jsonb_typeof(found_filter -> 'facts') <> 'number' or not (found_filter ->> 'facts')::numeric between 1 and 1000000
    then
        perform mindful._raise('22023', 'confidence, accesses and facts must be numbers', 'For example {"confidence": 0.8, "accesses": 1, "facts": 500}.');
    end if;
    perform (found_filter ->> 'since')::timestamptz;
    return found_filter;
end
$$;
comment on function _replay_filter(jsonb) is 'Thresholds of a replay run, the settings'' where the filter gives none; raises 22023.';

create function _replay_facts(filter jsonb)
returns table (
    id bigint, subject text, relation text, object text, content text, confidence real, valid boolean, said date,
    superseded_by bigint, contradicted_by bigint, evidence jsonb, below text
)
language sql stable parallel safe security invoker
begin atomic
    select m.id, s.subject, s.relation, s.object, m.content, m.confidence,
        (m.valid_to is null or m.valid_to > pg_catalog.now()), m.valid_from::date, m.superseded_by,
        (select pg_catalog.min(l.source_id) from mindful.memory_link l
            where l.tenant = m.tenant and l.target_id = m.id and l.relation = 'contradicts'),
        (select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('source_id', e.source_id, 'quote', e.quote) order by e.source_id)
            from mindful.memory_evidence e where e.tenant = m.tenant and e.id = m.id),
        case
            when pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], m.level)
                < pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], filter ->> 'level') then 'level'
            when coalesce(m.confidence, 0) < (filter ->> 'confidence')::real then 'confidence'
            when coalesce(a.access_count, 0) < (filter ->> 'accesses')::numeric then 'accesses'
        end
    from mindful.memory_statement s
    join mindful.memory m on m.tenant = s.tenant and m.id = s.id
    left join mindful.memory_access a on a.tenant = m.tenant and a.id = m.id
    where s.tenant = (select mindful._tenant())
        and (filter ->> 'since' is null or m.created_at >= (filter ->> 'since')::timestamptz)
    order by coalesce(a.access_count, 0) desc, m.confidence desc, m.id;
end;
comment on function _replay_facts(jsonb) is 'Drawn facts, the most used and surest first, and the threshold that each is below, if any.';

create function _replay_neighbors(id bigint, most integer)
returns table (neighbor_id bigint, relation text, depth integer, content text)
language sql stable parallel safe security invoker
begin atomic
    with recursive walk (id, relation, depth, weight) as (
        select _replay_neighbors.id, null::text, 0, 1::double precision
        union all
        select n.id, n.relation, w.depth + 1, w.weight * n.weight
        from walk w,
            lateral (
                select case when l.source_id = w.id then l.target_id else l.source_id end as id, l.relation, l.weight
                from mindful.memory_link l
                where l.tenant = (select mindful._tenant()) and (l.source_id = w.id or l.target_id = w.id)
                    and l.relation <> 'contradicts'
                order by l.weight desc, 1 limit 8
            ) n
        where w.depth < 2
    ),
    nearest as (
        select distinct on (w.id) w.id, w.relation, w.depth, w.weight
        from walk w where w.id <> _replay_neighbors.id order by w.id, w.depth, w.weight desc
    )
    select n.id, n.relation, n.depth, m.content
    from nearest n
    join mindful.memory m on m.tenant = (select mindful._tenant()) and m.id = n.id
    where m.kind = 'fact' and (m.valid_to is null or m.valid_to > pg_catalog.now())
    order by n.depth, n.weight desc, n.id
    limit most;
end;
comment on function _replay_neighbors(bigint, integer) is 'Valid facts within two links of a fact, the nearest and most strongly linked first.';

create function _replay(run bigint, model text, thresholds jsonb) returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.sample import replay
return replay(run, model, thresholds)
$python$;
comment on function _replay(bigint, text, jsonb) is 'Writes the training samples of a run; returns counts.';

create function replay_run(model text, filter jsonb default '{}') returns replay_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    thresholds jsonb := mindful._replay_filter(filter);
    trained mindful.model;
    run bigint;
    counts jsonb := '{}';
    failure text;
    closed mindful.consolidation;
begin
    select m.* into trained from mindful.model m where m.name = replay_run.model and m.kind = 'generator';
    if not found then
        perform mindful._raise('42704', format('there is no generator %s', coalesce(quote_literal(model), 'null')),
            'The models that you may use are listed in mindful.model.');
    elsif trained.prompt_format is null then
        perform mindful._raise('55000', format('the model "%s" has no prompt format', model),
            format('Have an administrator say how it is trained: mindful.model_training_set(%L, ''chatml'').', model));
    end if;
    perform mindful._consolidation_lock();
    run := mindful._consolidation_open('replay', model, jsonb_strip_nulls(thresholds));
    begin
        counts := mindful._replay(run, model, thresholds);
    exception when others then  -- a cancel is not among them
        failure := sqlstate || ': ' || sqlerrm;
        counts := '{}';
    end;
    closed := mindful._consolidation_close(run, counts, failure, true);
    return (closed.id, closed.status, model, closed.memories_processed, closed.pairs_generated,
        closed.outputs -> 'refused', closed.outputs -> 'below', closed.error)::mindful.replay_detail;
end
$$;
comment on function replay_run(text, jsonb) is
'Makes instruction pairs for a generator of the caller''s facts that are of at least a level, a confidence and a number of uses (filter: {"level", "confidence", "accesses", "facts", "since"}; the settings replay_level, replay_confidence and replay_accesses where it gives none), in forms that fit the model''s specialisation. A pair is kept only if its evidence exists and is valid now, the user consents (setting training_consent), it holds no secret and no personal data, it is no duplicate, does not soon change, and fits max_sequence_length; what is refused is kept with the reasons. A run that finds no fact, or none that passes, is stored as failed and says which threshold refused how many. Errors: 22023 (filter), 42704 (no such generator), 55000 (no prompt format), 55P03 (a run is going on).';

create function model_training_get(run bigint) returns jsonb
language plpython3u stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.sample import model_training_get
return model_training_get(run)
$python$;
comment on function model_training_get(bigint) is
'What training on a replay run''s pairs needs to know of its model: model, source, sha256_base, prompt_format, max_sequence_length, specialisation, lora, system_prompt. Error 42704 (no such run of yours).';

create function _sample_prompt(instruction text, input text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select instruction || case when input = '' then '' else E'\n\n' || input end;
end;
comment on function _sample_prompt(text, text) is 'What the model is asked for a pair: the instruction, and the input below it.';

create function _sample_json(format text, instruction text, input text, output text) returns jsonb
language sql stable parallel safe security invoker
begin atomic
    select case format
        when 'alpaca' then pg_catalog.jsonb_build_object('instruction', instruction, 'input', input, 'output', output)
        when 'chat' then pg_catalog.jsonb_build_object('messages', pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('role', 'user', 'content', mindful._sample_prompt(instruction, input)),
            pg_catalog.jsonb_build_object('role', 'assistant', 'content', output)))
        when 'sharegpt' then pg_catalog.jsonb_build_object('conversations', pg_catalog.jsonb_build_array(
            pg_catalog.jsonb_build_object('from', 'human', 'value', mindful._sample_prompt(instruction, input)),
            pg_catalog.jsonb_build_object('from', 'gpt', 'value', output)))
    end;
end;
comment on function _sample_json(text, text, text, text) is 'A pair in one of the formats.';

create function replay_export(run bigint, format text default 'alpaca', split text default null) returns setof jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if format is null or format not in ('alpaca', 'chat', 'sharegpt') then
        perform mindful._raise('22023', format('format is %L', format), 'Formats are alpaca, chat and sharegpt.');
    elsif split is not null and split not in ('train', 'validation') then
        perform mindful._raise('22023', format('split is %L', split), 'Splits are train and validation; NULL is both.');
    elsif not exists (select from mindful.consolidation c
        where c.tenant = (select mindful._tenant()) and c.id = run and c.type = 'replay' and c.status = 'completed')
    then
        perform mindful._raise('42704', format('there is no completed replay run %s', coalesce(run::text, 'null')),
            'Your runs are in mindful.consolidation; make one with mindful.replay_run().');
    end if;
    return query
    select mindful._sample_json(format, s.instruction, s.input, s.output)
    from mindful.training_sample s
    where s.tenant = (select mindful._tenant()) and s.consolidation_id = run and s.refused = '{}'
        and (replay_export.split is null or s.split = replay_export.split)
    order by s.id;
end
$$;
comment on function replay_export(bigint, text, text) is
'The pairs that a replay run has kept, a JSON object each, in the order in which they were made: written one a line they are a JSONL file. Formats: alpaca (instruction, input, output), chat (messages with role and content), sharegpt (conversations with from and value). Split: train, validation, or both (NULL). Errors: 22023 (format, split), 42704 (no such run of yours that is completed).';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('training_gain', 'number', 0, 1, '{global,user}', '0.02',
        'How much better than its base, in F1 of words on held-out pairs, an adapter must be to become active.'),
    ('training_margin', 'number', 0, 1, '{global,user}', '0.05',
        'How much of the base''s accuracy on general questions an adapter may lose and still become active.');

create table training (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    consolidation_id bigint not null,
    base text not null,
    adapter text,
    status text not null default 'running' check (status in ('running', 'completed', 'failed')),
    active boolean not null default false,
    dataset_sha256 text not null,
    samples integer not null,
    parameters jsonb not null default '{}',
    base_figures jsonb,
    adapter_figures jsonb,
    verdict text,
    error text,
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    primary key (tenant, id),
    foreign key (tenant, consolidation_id) references consolidation (tenant, id),
    check ((status = 'failed') = (error is not null))
);
create index on training (tenant, consolidation_id);
create unique index training_active on training (tenant, base) where active;
comment on table training is 'Adapters that were trained on replay runs, with what they were measured to gain and to lose.';
comment on column training.dataset_sha256 is 'Hash of the pairs, as replay_export gives them in the format alpaca, a line each.';
comment on column training.verdict is 'Why the adapter became active, or why not.';

-- No foreign key to memory: that an adapter was trained on it must stay known when it is forgotten.
create table training_memory (
    tenant text not null default _tenant(),
    training_id bigint not null,
    memory_id bigint not null,
    primary key (tenant, memory_id, training_id),
    foreign key (tenant, training_id) references training (tenant, id) on delete cascade
);
create index on training_memory (tenant, training_id);
comment on table training_memory is 'The memories, sources of facts included, that adapters were trained on; kept when they are forgotten.';

create table general_question (
    id integer primary key,
    question text not null,
    answer text not null
);
comment on table general_question is 'Fixed questions of general knowledge: what training must not make a model forget. An answer is right if it holds this text, in any case.';
alter table general_question enable row level security;
alter table general_question force row level security;
create policy read on general_question for select using (true);
insert into general_question (id, question, answer)
select row_number() over (), q.question, q.answer
from (values
    ('What is the capital of France?', 'Paris'), ('What is the capital of Japan?', 'Tokyo'), ('What is the capital of Italy?', 'Rome'),
    ('What is the capital of Germany?', 'Berlin'), ('What is the capital of Spain?', 'Madrid'), ('What is the capital of Egypt?', 'Cairo'),
    ('What is the capital of England?', 'London'), ('What is the capital of Russia?', 'Moscow'), ('What is the capital of China?', 'Beijing'),
    ('What is the capital of Greece?', 'Athens'), ('Which planet is closest to the sun?', 'Mercury'),
    ('Which planet is the largest in the solar system?', 'Jupiter'), ('Which planet is known as the red planet?', 'Mars'),
    ('What is the chemical formula of water?', 'H2O'), ('What gas do plants take in from the air?', 'carbon dioxide'),
    ('Who wrote Romeo and Juliet?', 'Shakespeare'), ('Who painted the Mona Lisa?', 'Leonardo'), ('Who developed the theory of relativity?', 'Einstein'),
    ('What is the largest ocean on Earth?', 'Pacific'), ('What is the longest river in Africa?', 'Nile'),
    ('What is the highest mountain on Earth?', 'Everest'), ('How many days are there in a week?', 'seven'), ('How many legs does a spider have?', 'eight'),
    ('What is the opposite of hot?', 'cold'), ('What is the opposite of up?', 'down'), ('Which animal is known as the king of the jungle?', 'lion'),
    ('What do bees make?', 'honey'), ('What is frozen water called?', 'ice'), ('Which language is spoken in Brazil?', 'Portuguese'),
    ('Which language is spoken in Mexico?', 'Spanish'), ('In which continent is Kenya?', 'Africa'), ('In which continent is India?', 'Asia'),
    ('In which country is the Eiffel Tower?', 'France'), ('In which country are the pyramids of Giza?', 'Egypt'),
    ('What is the first month of the year?', 'January'), ('What is the last month of the year?', 'December'),
    ('What color is the sky on a clear day?', 'blue'), ('What color is grass?', 'green'), ('What do we call a baby dog?', 'puppy'),
    ('What is the name of the star at the center of our solar system?', 'Sun')
) q (question, answer);

do $do$
declare
    relation text;
begin
    foreach relation in array array['training', 'training_memory'] loop
        execute pg_catalog.format('alter table mindful.%I enable row level security', relation);
        execute pg_catalog.format('alter table mindful.%I force row level security', relation);
        execute pg_catalog.format($$create policy own on mindful.%I using (tenant = (select mindful._tenant()))
            with check (tenant = (select mindful._tenant()))$$, relation);
        perform pg_catalog.pg_extension_config_dump('mindful.' || relation, '');
    end loop;
end
$do$;
select pg_catalog.pg_extension_config_dump('mindful.training_id_seq', '');

create function _text_f1(answer text, expected text) returns double precision
language sql stable parallel safe security invoker
begin atomic
    with given as (
        select w.word, pg_catalog.count(*) as n from pg_catalog.regexp_split_to_table(pg_catalog.lower(answer), '[^a-z0-9]+') w (word)
        where w.word <> '' group by w.word
    ),
    wanted as (
        select w.word, pg_catalog.count(*) as n from pg_catalog.regexp_split_to_table(pg_catalog.lower(expected), '[^a-z0-9]+') w (word)
        where w.word <> '' group by w.word
    )
    select coalesce(2.0 * (select pg_catalog.sum(least(g.n, w.n)) from given g join wanted w using (word))
        / nullif((select pg_catalog.sum(n) from given) + (select pg_catalog.sum(n) from wanted), 0), 0)::double precision;
end;
comment on function _text_f1(text, text) is 'F1 of the words of an answer against the expected ones, as in SQuAD (Rajpurkar and others 2016), without its removal of articles.';

create function training_evaluate(run bigint, model text default null) returns jsonb
language plpgsql volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    pairs mindful.training_sample[];
    questions mindful.general_question[];
    answers text[];
    general text[];
begin
    perform mindful.replay_export(run);
    pairs := array(select s from mindful.training_sample s
        where s.tenant = (select mindful._tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'validation'
        order by s.id);
    questions := array(select q from mindful.general_question q order by q.id);
    answers := mindful.llm_generate_many(array(select mindful._sample_prompt(p.instruction, p.input) from unnest(pairs) p), model => training_evaluate.model, max_tokens => 64);
    general := mindful.llm_generate_many(array(select q.question from unnest(questions) q), model => training_evaluate.model, max_tokens => 32);
    return (
        select jsonb_build_object('held_out_f1', round(avg(f.f1)::numeric, 4), 'held_out', count(*),
            'by_form', (select jsonb_object_agg(g.form, round(g.f1::numeric, 4)) from (
                select p.form, avg(mindful._text_f1(a.answer, p.output)) as f1
                from unnest(pairs) with ordinality p, unnest(answers) with ordinality a (answer, at) where a.at = p.ordinality group by p.form) g))
        from (select mindful._text_f1(a.answer, p.output) as f1
            from unnest(pairs) with ordinality p, unnest(answers) with ordinality a (answer, at) where a.at = p.ordinality) f
    ) || (
        select jsonb_build_object('general_accuracy', round(avg((strpos(lower(a.answer), lower(q.answer)) > 0)::integer), 4), 'general', count(*))
        from unnest(questions) with ordinality q, unnest(general) with ordinality a (answer, at) where a.at = q.ordinality
    );
end
$$;
comment on function training_evaluate(bigint, text) is
'Has a generator answer the held-out pairs of a replay run and the general questions, greedily, and measures it: held_out_f1 is the mean F1 of words against the pairs'' outputs, by_form the same by form, general_accuracy the share of general questions whose answer holds the right text. Errors: 42704 (no such run or model), 57014 (cancelled), 55P03 (no free slot).';

create function replay_hash(run bigint) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(coalesce(pg_catalog.string_agg(e.line::text, E'\n'), ''), 'UTF8')), 'hex')
    from mindful.replay_export(run) e (line);
end;
comment on function replay_hash(bigint) is
'SHA-256 of the lines that replay_export gives in the format alpaca, with line feeds between them: a manifest holds it, and training refuses a dataset whose run has another since. Error 42704.';

create function training_start(run bigint, dataset_sha256 text, parameters jsonb default '{}') returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    started bigint;
begin
    if dataset_sha256 is distinct from mindful.replay_hash(run) then
        perform mindful._raise('55000', format('the pairs of run %s are no longer those of the dataset', run),
            'What was forgotten since must not be trained on: export the run again.');
    end if;
    insert into mindful.training (consolidation_id, base, dataset_sha256, samples, parameters)
    select c.id, c.model, training_start.dataset_sha256,
        (select count(*) from mindful.training_sample s
            where s.tenant = c.tenant and s.consolidation_id = c.id and s.refused = '{}' and s.split = 'train'),
        training_start.parameters
    from mindful.consolidation c
    where c.tenant = (select mindful._tenant()) and c.id = run
    returning id into started;
    insert into mindful.training_memory (training_id, memory_id)
    select started, x.memory_id
    from mindful.training_sample s
    join mindful.training_sample_memory x on x.tenant = s.tenant and x.sample_id = s.id
    where s.tenant = (select mindful._tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train'
    union
    select started, e.source_id
    from mindful.training_sample s
    join mindful.training_sample_memory x on x.tenant = s.tenant and x.sample_id = s.id
    join mindful.memory_evidence e on e.tenant = x.tenant and e.id = x.memory_id
    where s.tenant = (select mindful._tenant()) and s.consolidation_id = run and s.refused = '{}' and s.split = 'train';
    return started;
end
$$;
comment on function training_start(bigint, text, jsonb) is
'Enters a training on a replay run''s pairs, whose hash is the dataset''s, and returns its id. Errors: 42704 (no such run), 55000 (the pairs have changed since they were exported).';

create function training_finish(id bigint, adapter text, base_figures jsonb, adapter_figures jsonb) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    gain numeric := (adapter_figures ->> 'held_out_f1')::numeric - (base_figures ->> 'held_out_f1')::numeric;
    loss numeric := (base_figures ->> 'general_accuracy')::numeric - (adapter_figures ->> 'general_accuracy')::numeric;
    kept boolean := gain >= (mindful.setting_get('training_gain') #>> '{}')::numeric
        and loss <= (mindful.setting_get('training_margin') #>> '{}')::numeric;
    told text;
    done mindful.training;
begin
    if kept is null then
        perform mindful._raise('22023', 'the figures lack held_out_f1 or general_accuracy', 'Give what training_evaluate returned.');
    end if;
    told := format('%s: %s F1 on held-out pairs, %s of general accuracy', case when kept then 'active' else 'kept aside' end,
        to_char(gain, 'SG0.0000'), to_char(-loss, 'SG0.0000'));
    update mindful.training t
    set status = 'completed', adapter = training_finish.adapter, base_figures = training_finish.base_figures,
        adapter_figures = training_finish.adapter_figures, verdict = told, finished_at = clock_timestamp()
    where t.tenant = (select mindful._tenant()) and t.id = training_finish.id and t.status = 'running'
    returning t.* into done;
    if not found then
        perform mindful._raise('42704', format('there is no running training %s', coalesce(id::text, 'null')), 'Your trainings are in mindful.training.');
    end if;
    update mindful.model m set samples_total = m.samples_total + done.samples, trained_at = now() where m.name = done.base;
    if kept then
        perform mindful.adapter_activate(adapter);
    end if;
    return told;
end
$$;
comment on function training_finish(bigint, text, jsonb, jsonb) is
'Enters what training_evaluate found of the base and of the adapter, and makes the adapter active if it gains at least training_gain on the held-out pairs and loses at most training_margin on the general questions; else it stays registered, with its figures. Returns the verdict. For administrators. Errors: 22023, 42704.';

create function training_fail(id bigint, error text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    update mindful.training t set status = 'failed', error = coalesce(training_fail.error, 'unknown'), finished_at = clock_timestamp()
    where t.tenant = (select mindful._tenant()) and t.id = training_fail.id and t.status = 'running';
    if not found then
        perform mindful._raise('42704', format('there is no running training %s', coalesce(id::text, 'null')), 'Your trainings are in mindful.training.');
    end if;
end
$$;
comment on function training_fail(bigint, text) is 'Enters that a training has failed, and why. Error 42704.';

create function adapter_activate(adapter text) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    chosen mindful.training;
begin
    select t.* into chosen from mindful.training t
    where t.tenant = (select mindful._tenant()) and t.adapter = adapter_activate.adapter and t.status = 'completed';
    if not found then
        perform mindful._raise('42704', format('no training of yours has made %s', coalesce(quote_literal(adapter), 'null')), 'Your trainings are in mindful.training.');
    end if;
    update mindful.training t set active = false where t.tenant = chosen.tenant and t.base = chosen.base and t.active and t.id <> chosen.id;
    update mindful.training t set active = true where t.tenant = chosen.tenant and t.id = chosen.id;
    perform mindful.model_default_set(adapter);
end
$$;
comment on function adapter_activate(text) is
'Makes an adapter that a training has made active, in its base''s place: it becomes the default generator. For administrators. Error 42704.';

create function adapter_rollback(base text) returns text
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    rolled text;
begin
    update mindful.training t set active = false
    where t.tenant = (select mindful._tenant()) and t.base = adapter_rollback.base and t.active
    returning t.adapter into rolled;
    if not found then
        perform mindful._raise('42704', format('no adapter of %s is active', coalesce(quote_literal(base), 'null')), 'Your trainings are in mindful.training.');
    end if;
    perform mindful.model_default_set(base);
    return rolled;
end
$$;
comment on function adapter_rollback(text) is
'Takes a base''s active adapter back and returns its name: the base is the default generator again. The adapter stays registered. For administrators. Error 42704.';

create function adapters_trained_on(memory_id bigint)
returns table (training_id bigint, adapter text, base text, active boolean, forgotten boolean)
language sql stable parallel safe security invoker
begin atomic
    select t.id, t.adapter, t.base, t.active,
        not exists (select from mindful.memory m where m.tenant = t.tenant and m.id = x.memory_id)
    from mindful.training_memory x
    join mindful.training t on t.tenant = x.tenant and t.id = x.training_id
    where x.tenant = (select mindful._tenant()) and x.memory_id = adapters_trained_on.memory_id
    order by t.id;
end;
comment on function adapters_trained_on(bigint) is
'The adapters that were trained on a memory, be it forgotten or not: what weights have learned is not undone by forgetting, so these are to be rolled back or trained anew.';

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('consolidation_after', 'integer', 0, 10000, '{global,user}', '50',
        'So many unread messages and documents among the newest memories ask for a run, which a worker makes; 0 is never.');

create function _consolidation_ask() returns trigger
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    enough integer := (mindful.setting_get('consolidation_after') #>> '{}')::integer;
    unread bigint;
begin
    if enough = 0 or exists (select from mindful.consolidation c
        where c.tenant = (select mindful._tenant()) and c.type = 'extract' and c.status in ('pending', 'running'))
    then
        return null;
    end if;
    select count(*) into unread
    from (
        select m.id, m.kind, m.role from mindful.memory m
        where m.tenant = (select mindful._tenant()) order by m.id desc limit 2 * enough
    ) m
    left join mindful.memory_extraction x on x.tenant = (select mindful._tenant()) and x.id = m.id
    where x.id is null and (m.kind = 'document' or m.kind = 'message' and m.role = 'user');
    -- Whoever comes second leaves it to the first, and does not wait for him.
    if unread >= enough
        and pg_try_advisory_xact_lock(hashtextextended('mindful.consolidation_ask ' || mindful._tenant(), 0))
    then
        insert into mindful.consolidation (type) values ('extract') on conflict do nothing;
        notify mindful_job;
    end if;
    return null;
end
$$;
comment on function _consolidation_ask() is
'Asks for a run, which is then pending, when enough of the newest memories are unread; workers that listen on mindful_job hear of it.';

create trigger consolidation_ask after insert on memory
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _consolidation_ask();

create function consolidation_work(everyone boolean default false, tenants integer default 10) returns integer
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    outer_tenant text := coalesce(current_setting('mindful.tenant', true), '');
    due text;
    runs integer := 0;
begin
    perform mindful._integer_argument('tenants', tenants, 1, 100000);
    for due in
        select d.tenant from (
            select c.tenant, min(c.created_at) as since from mindful.consolidation c
            where c.type = 'extract' and c.status in ('pending', 'running') group by c.tenant
            union all
            select m.tenant, max(m.created_at) from mindful.memory m
            left join mindful.memory_extraction x on x.tenant = m.tenant and x.id = m.id
            where everyone and m.kind in ('message', 'document') and (x.id is null or x.content_hash <> m.content_hash)
            group by m.tenant
        ) d
        group by d.tenant order by min(d.since) limit consolidation_work.tenants
    loop
        perform set_config('mindful.tenant', due, true);
        if pg_try_advisory_xact_lock(hashtextextended('mindful.consolidation ' || mindful._tenant(), 0)) then
            perform mindful.memory_consolidate();
            runs := runs + 1;
        end if;
    end loop;
    perform set_config('mindful.tenant', outer_tenant, true);
    return runs;
end
$$;
comment on function consolidation_work(boolean, integer) is
'Makes or goes on with the runs that are asked for, or, for everyone, with those of all tenants that have something unread, a tenant after the other, as far as the caller reaches them: a superuser all, others their own. Returns how many; what one call reads of a tenant, the setting consolidation_memories bounds. Error 22023.';

create function consolidation_schedule(schedule text default '30 2 * * *') returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if not exists (select from pg_extension e where e.extname = 'pg_cron') then
        perform mindful._raise('55000', 'the extension pg_cron is not installed in this database',
            'Install it, or run the worker: mindful worker.');
    end if;
    if exists (select from cron.job j where j.jobname = 'mindful_consolidation' and j.username = current_user) then
        perform cron.unschedule('mindful_consolidation');
        perform cron.unschedule('mindful_consolidation_nightly');
    end if;
    if schedule is null then
        return false;
    end if;
    perform cron.schedule('mindful_consolidation', '*/5 * * * *', 'select mindful.consolidation_work()');
    perform cron.schedule('mindful_consolidation_nightly', schedule, 'select mindful.consolidation_work(everyone => true, tenants => 100000)');
    return true;
end
$$;
comment on function consolidation_schedule(text) is
'Has pg_cron read for facts every five minutes where that is asked for, and everything at a schedule (crontab''s five fields; NULL ends both), as the calling role. Returns whether it is scheduled now. Errors: 55000 (no pg_cron), 42501 (no right to the schema cron).';

revoke execute on function
    _consolidate(bigint,timestamp with time zone,text,text,integer,integer),
    _consolidation_ask(),
    _consolidation_close(bigint,jsonb,text,boolean),
    _consolidation_finish(bigint),
    _consolidation_lock(),
    _consolidation_open(text,text,jsonb),
    _consolidation_pending(timestamp with time zone,text[]),
    _consolidation_summary_refresh(),
    _counts_add(jsonb,jsonb),
    _evidence_confidence(text,bigint),
    _evidence_lost(),
    _limit(jsonb,text,integer,integer),
    _link_strengthen(timestamp with time zone),
    _memory_decay(integer),
    _memory_promote(),
    _replay(bigint,text,jsonb),
    _replay_facts(jsonb),
    _replay_filter(jsonb),
    _replay_neighbors(bigint,integer),
    _sample_json(text,text,text,text),
    _sample_lost(),
    _sample_memory_lost(),
    _sample_prompt(text,text),
    _text_f1(text,text),
    adapter_activate(text),
    adapter_rollback(text),
    adapters_trained_on(bigint),
    consolidation_schedule(text),
    consolidation_work(boolean,integer),
    memory_consolidate(timestamp with time zone,jsonb,text,text),
    model_training_get(bigint),
    model_training_set(text,text,integer,text,jsonb),
    replay_export(bigint,text,text),
    replay_hash(bigint),
    replay_run(text,jsonb),
    training_evaluate(bigint,text),
    training_fail(bigint,text),
    training_finish(bigint,text,jsonb,jsonb),
    training_start(bigint,text,jsonb)
from public;
grant execute on function
    _consolidate(bigint,timestamp with time zone,text,text,integer,integer),
    _consolidation_ask(),
    _consolidation_close(bigint,jsonb,text,boolean),
    _consolidation_finish(bigint),
    _consolidation_lock(),
    _consolidation_open(text,text,jsonb),
    _consolidation_pending(timestamp with time zone,text[]),
    _consolidation_summary_refresh(),
    _counts_add(jsonb,jsonb),
    _evidence_confidence(text,bigint),
    _evidence_lost(),
    _limit(jsonb,text,integer,integer),
    _link_strengthen(timestamp with time zone),
    _memory_decay(integer),
    _memory_promote(),
    _replay(bigint,text,jsonb),
    _replay_facts(jsonb),
    _replay_filter(jsonb),
    _replay_neighbors(bigint,integer),
    _sample_json(text,text,text,text),
    _sample_lost(),
    _sample_memory_lost(),
    _sample_prompt(text,text),
    _text_f1(text,text),
    adapters_trained_on(bigint),
    consolidation_schedule(text),
    consolidation_work(boolean,integer),
    memory_consolidate(timestamp with time zone,jsonb,text,text),
    model_training_get(bigint),
    replay_export(bigint,text,text),
    replay_hash(bigint),
    replay_run(text,jsonb),
    training_evaluate(bigint,text),
    training_fail(bigint,text),
    training_start(bigint,text,jsonb)
to mindful_user;
grant execute on function
    adapter_activate(text),
    adapter_rollback(text),
    model_training_set(text,text,integer,text,jsonb),
    training_finish(bigint,text,jsonb,jsonb)
to mindful_admin;
grant select, insert, update, delete on consolidation, memory_extraction, memory_statement, memory_entity, training_sample,
    training_sample_memory to mindful_user;
-- What weights were made of stays known.
grant select, insert, update on training to mindful_user;
grant select, insert on training_memory to mindful_user;
grant select on general_question to mindful_user;
grant select on consolidation_summary to mindful_reader;

-- transfer
create function _memory_embeddings(id bigint) returns jsonb
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    model text;
    found text;
    embeddings jsonb := '{}';
begin
    for model in select m.name from mindful.model m where m.kind = 'embedder' order by m.name loop
        execute format('select e.embedding::text from mindful.%I e where e.tenant = $1 and e.id = $2
            and e.content_hash = (select m.content_hash from mindful.memory m where m.tenant = $1 and m.id = $2)',
            mindful._embedding_table(model))
        into found using mindful._tenant(), id;
        if found is not null then
            embeddings := embeddings || jsonb_build_object(model, found::jsonb);
        end if;
    end loop;
    return embeddings;
end
$$;
comment on function _memory_embeddings(bigint) is 'A memory''s embeddings, by model, that are of its present text.';

create function memory_export(
    kinds text[] default null,
    session_id uuid default null,
    source text default null,
    embeddings boolean default false
) returns setof jsonb
language sql stable parallel unsafe security invoker rows 1000
begin atomic
    with chosen as not materialized (
        select m.id
        from mindful.memory m
        where m.tenant = (select mindful._tenant())
            and (kinds is null or m.kind = any (kinds))
            and (memory_export.session_id is null or m.session_id = memory_export.session_id)
            and (memory_export.source is null or m.source = memory_export.source)
    )
    select pg_catalog.jsonb_build_object('type', 'export', 'models', case when memory_export.embeddings then (
        select pg_catalog.jsonb_object_agg(m.name, m.sha256) from mindful.model m where m.kind = 'embedder') end)
    union all
    select pg_catalog.to_jsonb(s) - 'tenant' || '{"type": "session"}'
    from mindful.session s
    where s.tenant = (select mindful._tenant())
        and (kinds is null and memory_export.session_id is null and memory_export.source is null
            or exists (select from mindful.memory m join chosen c on c.id = m.id
                where m.tenant = s.tenant and m.session_id = s.session_id))
    union all
    (
        select pg_catalog.to_jsonb(m) - '{tenant,content_hash}'::text[] || '{"type": "memory"}' || case
            when memory_export.embeddings then pg_catalog.jsonb_build_object('embeddings', mindful._memory_embeddings(m.id))
            else '{}'::jsonb
        end
        from mindful.memory m join chosen c on c.id = m.id
        where m.tenant = (select mindful._tenant())
        order by m.id
    )
    union all
    select pg_catalog.to_jsonb(l) - 'tenant' || '{"type": "link"}'
    from mindful.memory_link l join chosen s on s.id = l.source_id join chosen t on t.id = l.target_id
    where l.tenant = (select mindful._tenant())
    union all
    select pg_catalog.to_jsonb(e) - 'tenant' || '{"type": "evidence"}'
    from mindful.memory_evidence e join chosen c on c.id = e.id join chosen s on s.id = e.source_id
    where e.tenant = (select mindful._tenant())
    union all
    select pg_catalog.to_jsonb(a) - 'tenant' || '{"type": "access"}'
    from mindful.memory_access a join chosen c on c.id = a.id
    where a.tenant = (select mindful._tenant());
end;
comment on function memory_export(text[], uuid, text, boolean) is
'The caller''s memories as JSON objects for memory_import, a row each: first one of type export, then sessions, memories, links, evidence and accesses with all their columns. Filters: kinds, one session, one source; links and evidence are given where both of their memories are. With embeddings true, memories bring those of their present text. Read it through a cursor or COPY where it is long.';

create function _import_problem(type text, line jsonb) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when pg_catalog.jsonb_typeof(line) is distinct from 'object' then 'is no JSON object'
        when type is null or type <> all (array['export', 'session', 'memory', 'link', 'evidence', 'access'])
            then 'has no type that is known'
        when type = 'session' and line ->> 'session_id' is null then 'has no session_id'
        when type = any (array['memory', 'evidence', 'access']) and line ->> 'id' is null then 'has no id'
        when type = 'memory' and coalesce(pg_catalog.btrim(line ->> 'content', E' \t\n\r'), '') = '' then 'has no content'
        when type = 'memory' and pg_catalog.octet_length(line ->> 'content') > 262144 then 'has a content of more than 262144 bytes'
        when type = 'link' and (line ->> 'source_id' is null or line ->> 'target_id' is null) then 'has no source_id or target_id'
        when type = 'evidence' and (line ->> 'source_id' is null or line ->> 'quote' is null) then 'has no source_id or quote'
    end;
end;
comment on function _import_problem(text, jsonb) is 'What is wrong with the shape of a line that is to be imported; NULL if nothing.';

create function _import_fail(number bigint, problem text) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform mindful._raise('22023', format('line %s %s', number, problem),
        'Nothing was imported. Lines are as memory_export writes them.');
end
$$;
comment on function _import_fail(bigint, text) is 'Raises the error of a line that cannot be imported.';

create function _import_defaults(relation regclass) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    defaults jsonb;
begin
    execute (
        select format('select jsonb_build_object(%s)',
            string_agg(format('%L, %s', a.attname, pg_get_expr(d.adbin, d.adrelid)), ', '))
        from pg_attribute a
        join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = relation and a.attgenerated = '' and a.attidentity = ''
    ) into defaults;
    return defaults;
end
$$;
comment on function _import_defaults(regclass) is 'What the columns of a table hold where nobody gives them.';

create function _import_rule(relation regclass) returns text
language sql stable parallel safe security invoker
begin atomic
    select pg_catalog.format('select %L || c.name from jsonb_populate_record(null::%s, $1) r, lateral (values %s) c (name, holds)
        where not c.holds limit 1', 'breaks the rule ', relation,
        pg_catalog.string_agg(pg_catalog.format('(%L, %s)', c.conname, pg_catalog.pg_get_expr(c.conbin, c.conrelid)), ', '))
    from pg_catalog.pg_constraint c
    where c.conrelid = relation and c.contype = 'c';
end;
comment on function _import_rule(regclass) is
'A query that reads a JSON object, $1, as a row of a table, and gives the first CHECK constraint that it breaks.';

create function _import_check(lines text) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    tables jsonb := '{"session": "session", "memory": "memory", "link": "memory_link", "evidence": "memory_evidence", "access": "memory_access"}';
    defaults jsonb;
    rules jsonb;
    number bigint;
    line jsonb;
    problem text;
begin
    select jsonb_object_agg(t.key, mindful._import_defaults(('mindful.' || t.value)::regclass)),
        jsonb_object_agg(t.key, mindful._import_rule(('mindful.' || t.value)::regclass))
    into defaults, rules
    from jsonb_each_text(tables) t;
    begin
        for number, line in execute lines loop
            problem := mindful._import_problem(line ->> 'type', line);
            if problem is null and rules ? (line ->> 'type') then
                execute rules ->> (line ->> 'type') into problem using defaults -> (line ->> 'type') || line;
            end if;
            exit when problem is not null;
        end loop;
    exception
        when data_exception then
            problem := 'cannot be read: ' || sqlerrm;
    end;
    if problem is not null then
        perform mindful._import_fail(number, problem);
    end if;
end
$$;
comment on function _import_check(text) is
'Raises an error that names the first line that is no row of its type''s table. Lines are a query of number and line.';

create function _import_refer(lines text, ids bigint[]) returns void
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    number bigint;
    problem text;
begin
    execute format($query$
        with line as (%s)
        select l.number, 'has an id that another memory of the file has'
        from (
            select l.number, row_number() over (partition by l.line ->> 'id' order by l.number) as occurrence
            from line l where l.line ->> 'type' = 'memory'
        ) l
        where l.occurrence > 1
        union all
        select l.number, format('names memory %%s, which is not in the file', r.id)
        from line l, lateral (values ('id'), ('source_id'), ('target_id')) k (key),
            lateral (select (l.line ->> k.key)::bigint) r (id)
        where l.line ->> 'type' in ('link', 'evidence', 'access') and r.id is not null
            and not exists (select from unnest($1) i (id) where i.id = r.id)
        union all
        select l.number, format('names session %%s, which is not in the file', l.line ->> 'session_id')
        from line l
        where l.line ->> 'type' = 'memory' and l.line ->> 'session_id' is not null
            and not exists (select from mindful.session s
                where s.tenant = (select mindful._tenant()) and s.session_id = (l.line ->> 'session_id')::uuid)
        limit 1$query$, lines)
    into number, problem using ids;
    if number is not null then
        perform mindful._import_fail(number, problem);
    end if;
end
$$;
comment on function _import_refer(text, bigint[]) is
'Raises an error that names a line which refers to what is neither in the file nor there; ids are those of the file''s memories.';

create type memory_origin as (
    number bigint,
    old_id bigint,
    known_id bigint,
    differs boolean
);
comment on type memory_origin is
'A memory that is to be imported: its line, its id there, the memory here that it is, and whether that has another text.';

create function _import_match(lines text) returns setof memory_origin
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    return query execute format($query$
        with given as (
            select l.number, (l.line ->> 'id')::bigint as id, md5(l.line ->> 'content') as hash, r.kind, r.created_at,
                r.session_id, r.turn, r.source, r.source_key,
                row_number() over (partition by r.kind, r.created_at, md5(l.line ->> 'content') order by l.number) as occurrence
            from (%s) l, jsonb_populate_record(null::mindful.memory, $1 || l.line) r
            where l.line ->> 'type' = 'memory'
        ),
        known as (
            select m.id, m.content_hash, m.kind, m.created_at,
                row_number() over (partition by m.kind, m.created_at, m.content_hash order by m.id) as occurrence
            from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.turn is null and m.source_key is null
        )
        select g.number, g.id, coalesce(t.id, s.id, k.id), coalesce(t.content_hash <> g.hash, s.content_hash <> g.hash, false)
        from given g
        left join mindful.memory t on t.tenant = (select mindful._tenant()) and t.session_id = g.session_id and t.turn = g.turn
        left join mindful.memory s on s.tenant = (select mindful._tenant()) and s.source = g.source and s.source_key = g.source_key
        left join known k on g.turn is null and g.source_key is null
            and k.kind = g.kind and k.created_at = g.created_at and k.content_hash = g.hash and k.occurrence = g.occurrence
        order by g.number$query$, lines)
    using mindful._import_defaults('mindful.memory');
end
$$;
comment on function _import_match(text) is
'Which memories of a file are here already: messages by session and turn, parts of a source by source and key, others by kind, time and text, the n-th with the n-th.';

create function _import_memories(lines text, old_ids bigint[], new_ids bigint[], known boolean[]) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    columns text[] := (
        select array_agg(quote_ident(a.attname) order by a.attnum) from pg_attribute a
        where a.attrelid = 'mindful.memory'::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    );
    model text;
    embedded text := '';
    inserted bigint;
begin
    -- In the statement that inserts the memories: when it ends, what embeds new memories finds these embedded.
    for model in execute format('select m.name from mindful.model m, (%s) l
        where m.kind = ''embedder'' and l.line ->> ''type'' = ''export'' and l.line -> ''models'' ->> m.name = m.sha256', lines)
    loop
        embedded := embedded || format($query$,
            %I as (
                insert into mindful.%I (tenant, id, embedding, content_hash)
                select mindful._tenant(), n.id, mindful._vector(n.line -> 'embeddings' ->> %L), md5(n.line ->> 'content')
                from new n where n.line -> 'embeddings' ? %L
            )$query$, 'by ' || model, mindful._embedding_table(model), model, model);
    end loop;
    execute format($query$
        with new as materialized (
            select i.id, l.line, $4 || l.line || jsonb_build_object('tenant', mindful._tenant(), 'id', i.id, 'superseded_by', s.id) as row
            from (%s) l
            join unnest($1, $2, $3) i (old_id, id, known) on l.line ->> 'type' = 'memory' and i.old_id = (l.line ->> 'id')::bigint
            left join unnest($1, $2) s (old_id, id) on s.old_id = (l.line ->> 'superseded_by')::bigint
            where not i.known
        )%s, inserted as (
            insert into mindful.memory (%s) overriding system value
            select r.%s from new n, jsonb_populate_record(null::mindful.memory, n.row) r order by n.id
            returning 1
        )
        select count(*) from inserted$query$,
        lines, embedded, array_to_string(columns, ', '), array_to_string(columns, ', r.'))
    into inserted using old_ids, new_ids, known, mindful._import_defaults('mindful.memory');
    return inserted;
end
$$;
comment on function _import_memories(text, bigint[], bigint[], boolean[]) is
'Inserts the memories of a file that are not known under their new ids, with the embeddings of models that are the same here; returns their number.';

create function _import_rows(
    relation regclass,
    type text,
    keys text[],
    lines text,
    old_ids bigint[] default '{}',
    new_ids bigint[] default '{}'
) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    inserted bigint;
begin
    execute (
        select format($query$
            insert into %s
            select r.*
            from (%s) l %s,
                jsonb_populate_record(null::%s, $3 || l.line || jsonb_build_object('tenant', mindful._tenant()%s)) r
            where l.line ->> 'type' = %L
            on conflict do nothing$query$,
            relation, lines,
            string_agg(format('join unnest($1, $2) %I (old_id, id) on %I.old_id = (l.line ->> %L)::bigint', k.key, k.key, k.key), ' '),
            relation, string_agg(format(', %L, %I.id', k.key, k.key), ''), type)
        from unnest(keys) k (key)
    ) using old_ids, new_ids, mindful._import_defaults(relation);
    get diagnostics inserted = row_count;
    return inserted;
end
$$;
comment on function _import_rows(regclass, text, text[], text, bigint[], bigint[]) is
'Inserts the lines of a type into its table, with the new ids in the columns that are named as keys; returns the number of rows that were not there.';

create type import_change as (
    sessions bigint,
    memories bigint,
    kept bigint,
    links bigint,
    evidence bigint,
    accesses bigint
);
comment on type import_change is 'How many rows of each type an import added; kept counts the memories that were there already.';

create function memory_import(lines regclass) returns import_change
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    line_column name;
    query text;
    number bigint;
    old_ids bigint[];
    new_ids bigint[];
    known boolean[];
    sessions bigint;
    memories bigint;
begin
    if lines is null then
        perform mindful._raise('22004', 'lines is null', 'Name a table with one column of type jsonb that holds the lines.');
    end if;
    select min(a.attname::text) into line_column
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where a.attrelid = lines and a.attnum > 0 and not a.attisdropped and c.relkind = 'r'
    having count(*) = 1 and bool_and(a.atttypid = 'jsonb'::regtype);
    if line_column is null then
        perform mindful._raise('42809', format('%s is no table with one column of type jsonb', lines),
            'Make one, CREATE TEMP TABLE t (line jsonb), and COPY the lines into it.');
    end if;
    query := format('select row_number() over (order by t.ctid) as number, t.%I as line from %s t', line_column, lines);
    perform mindful._import_check(query);
    sessions := mindful._import_rows('mindful.session', 'session', '{}', query);
    select min(m.number) filter (where m.differs), array_agg(m.old_id), array_agg(m.known_id), array_agg(m.known_id is not null)
    into number, old_ids, new_ids, known
    from mindful._import_match(query) m;
    if number is not null then
        perform mindful._import_fail(number, 'is another memory than the one here with its session and turn, or source and key');
    end if;
    perform mindful._import_refer(query, old_ids);
    select array_agg(coalesce(i.id, nextval('mindful.memory_id_seq')) order by i.n) into new_ids
    from unnest(new_ids) with ordinality i (id, n);
    memories := mindful._import_memories(query, old_ids, new_ids, known);
    return (
        sessions, memories, coalesce(cardinality(old_ids), 0) - memories,
        mindful._import_rows('mindful.memory_link', 'link', '{source_id,target_id}', query, old_ids, new_ids),
        mindful._import_rows('mindful.memory_evidence', 'evidence', '{id,source_id}', query, old_ids, new_ids),
        mindful._import_rows('mindful.memory_access', 'access', '{id}', query, old_ids, new_ids)
    )::mindful.import_change;
end
$$;
comment on function memory_import(regclass) is
'Imports what memory_export wrote, from a table with one column of type jsonb that holds the lines, and says how many rows it added. Memories get new ids, and what refers to them follows; times, validity and the rest stay. What is there already is kept as it is, so importing twice adds nothing. Embeddings are taken from the lines where the model of that name is the same here, else computed. All or none. Errors: 22023 (the first line that is wrong, by its number), 22004, 42809 (no such table).';

grant usage on sequence memory_id_seq to mindful_user;
revoke execute on function
    _memory_embeddings(bigint),
    memory_export(text[], uuid, text, boolean),
    _import_problem(text, jsonb),
    _import_fail(bigint, text),
    _import_defaults(regclass),
    _import_rule(regclass),
    _import_check(text),
    _import_refer(text, bigint[]),
    _import_match(text),
    _import_memories(text, bigint[], bigint[], boolean[]),
    _import_rows(regclass, text, text[], text, bigint[], bigint[]),
    memory_import(regclass)
from public;
grant execute on function
    _memory_embeddings(bigint),
    memory_export(text[], uuid, text, boolean),
    _import_problem(text, jsonb),
    _import_fail(bigint, text),
    _import_defaults(regclass),
    _import_rule(regclass),
    _import_check(text),
    _import_refer(text, bigint[]),
    _import_match(text),
    _import_memories(text, bigint[], bigint[], boolean[]),
    _import_rows(regclass, text, text[], text, bigint[], bigint[]),
    memory_import(regclass)
to mindful_user;

-- duplicate
alter function _array_elements(text, jsonb, text[]) rows 10;
grant select, insert, update, delete on memory_duplicate to mindful_user;
revoke execute on function
    _memory_joinable(memory),
    _memory_near(memory, bigint[]),
    _memory_same(memory, bigint[]),
    _memory_repeat(bigint),
    _memory_join_lock(bigint[], boolean),
    _memory_join(bigint[], boolean),
    _memory_supersede(bigint[]),
    _memory_insert_many(jsonb)
from public;
grant execute on function
    _memory_joinable(memory),
    _memory_near(memory, bigint[]),
    _memory_same(memory, bigint[]),
    _memory_repeat(bigint),
    _memory_join_lock(bigint[], boolean),
    _memory_join(bigint[], boolean),
    _memory_supersede(bigint[]),
    _memory_insert_many(jsonb)
to mindful_user;

-- forget
-- What refers to a memory does so by a foreign key that cascades, or that sets itself NULL. Nothing else has to be done
-- for forgetting to reach it: the receipt's counts and the check are read from the catalog.

create table forget_receipt (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    scope text not null check (scope in ('ids', 'session', 'filter', 'everything', 'prune', 'retention')),
    forgotten_by text not null default current_user,
    forgotten_at timestamptz not null default now(),
    memory_ids bigint[] not null,
    salt text not null default gen_random_uuid()::text,
    hashes text[] not null,
    counts jsonb not null,
    mentions jsonb not null,
    primary key (tenant, id)
);
comment on table forget_receipt is 'What was forgotten when and by whom: ids, counts and hashes, no content.';
comment on column forget_receipt.hashes is 'Of each forgotten text the hash that _forget_hash gives with the salt; none for what was pruned.';
comment on column forget_receipt.counts is 'What memory_forget returned.';
comment on column forget_receipt.mentions is 'Rows that repeat forgotten words and were kept: relation, column, key, and the hash of the text.';
alter table forget_receipt enable row level security;
alter table forget_receipt force row level security;
create policy own on forget_receipt using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
select pg_catalog.pg_extension_config_dump('mindful.forget_receipt', '');
select pg_catalog.pg_extension_config_dump('mindful.forget_receipt_id_seq', '');

create index memory_content_hash on memory (tenant, content_hash);
create index generation_memory_ids on generation using gin (memory_ids);
create index generation_parent on generation (tenant, parent_id) where parent_id is not null;

create function _generation_forget() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    update mindful.generation g
    set memory_ids = array(
            select s.id from unnest(g.memory_ids) with ordinality s (id, position)
            where s.id <> all (o.ids) order by s.position
        ),
        prompt_sha256 = ''
    from (select tenant, array_agg(id) as ids from old_rows group by tenant) o
    where g.tenant = o.tenant and g.memory_ids && o.ids;
    return null;
end
$$;
comment on function _generation_forget() is
'Takes deleted memories out of the record of what generators were shown, and the prompt''s hash with them, which could confirm a guess. With the owner''s rights, as users do not change records.';
create trigger generation_deleted after delete on memory referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on') execute function _generation_forget();

create function _memory_ids(metadata jsonb) returns table (id text, value jsonb, number bigint)
language sql immutable parallel safe security invoker rows 3
begin atomic
    select s.value #>> '{}', s.value, s.number
    from pg_catalog.jsonb_array_elements(case pg_catalog.jsonb_typeof(metadata -> 'memory_ids')
        when 'array' then metadata -> 'memory_ids' else '[]' end) with ordinality s (value, number);
end;
comment on function _memory_ids(jsonb) is 'The memories that a reply was shown, as its metadata say.';

create function _forget_paths() returns table (relation text, action text, condition text)
language sql stable parallel safe security invoker
begin atomic
    with recursive reached as (
        select b.relation, 'deleted' as action, b.condition collate "C" as condition, array[b.relation] as path
        from (values
            ('mindful.memory'::pg_catalog.regclass, 't.id = any ($2)'),
            ('mindful.session'::pg_catalog.regclass, 't.session_id = any ($3)')
        ) b (relation, condition)
        union all
        select f.conrelid::pg_catalog.regclass, case f.confdeltype when 'n' then 'changed' else 'deleted' end,
            pg_catalog.format('t.%I in (select t.%I from %s t where t.tenant = $1 and %s)',
                c.attname, p.attname, r.relation::pg_catalog.text, r.condition),
            r.path || f.conrelid::pg_catalog.regclass
        from reached r
        join pg_catalog.pg_constraint f on f.confrelid = r.relation and f.contype = 'f' and f.confdeltype = any ('{c,n}'::"char"[])
        -- Keys are (tenant, what is referred to).
        join pg_catalog.pg_attribute c on c.attrelid = f.conrelid and c.attnum = f.conkey[2]
        join pg_catalog.pg_attribute p on p.attrelid = f.confrelid and p.attnum = f.confkey[2]
        where r.action = 'deleted' and f.conrelid::pg_catalog.regclass <> all (r.path)
    )
    select c.relname, r.action, r.condition
    from reached r
    join pg_catalog.pg_class c on c.oid = r.relation;
end;
comment on function _forget_paths() is
'Which rows foreign keys delete or change with memories ($2, of the tenant $1) and sessions ($3), as conditions on a row t.';

create type forget_count as (receipt_id bigint, relation text, action text, rows bigint);
comment on type forget_count is 'How many rows of a table were deleted, changed, kept, or mention what was forgotten.';

create function _forget_counts(ids bigint[], sessions uuid[]) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    reached record;
    counted bigint;
begin
    for reached in
        select p.relation, p.action, string_agg(p.condition, ' or ') as condition,
            bool_or(p.relation in ('memory', 'session')) as is_root
        from mindful._forget_paths() p
        where cardinality(sessions) > 0 or p.condition not like '%$3%'
        group by p.relation, p.action
    loop
        execute format('select count(*) from mindful.%I t where t.tenant = $1 and (%s)', reached.relation, reached.condition)
        into counted using mindful._tenant(), ids, sessions;
        if counted > 0 or reached.is_root then
            return query select null::bigint, reached.relation, reached.action, counted;
        end if;
    end loop;
    return query
    select null::bigint, 'memory_term', 'deleted', count(*)
    from mindful.memory m, mindful._terms(m.content)
    where m.tenant = (select mindful._tenant()) and m.id = any (ids)
    union all
    select null::bigint, 'generation', 'changed', count(*)
    from mindful.generation g
    where g.tenant = (select mindful._tenant()) and g.memory_ids && ids
    having count(*) > 0
    union all
    select null::bigint, m.source, 'kept', count(*)
    from mindful.memory m
    join mindful.attachment a on a.tenant = m.tenant and a.source = m.source
    where m.tenant = (select mindful._tenant()) and m.id = any (ids)
    group by m.source;
end
$$;
comment on function _forget_counts(bigint[], uuid[]) is
'What deleting memories and sessions deletes and changes, table by table, and which attached tables still hold their rows.';

create function _forget_reach(ids bigint[]) returns bigint[]
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    frontier bigint[] := ids;
begin
    while cardinality(frontier) > 0 loop
        -- From here on nothing new can be drawn from them.
        perform from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.id = any (frontier)
        order by m.id for update;
        frontier := array(
            select n.id
            from (
                select m.superseded_by as id from mindful.memory m
                where m.tenant = (select mindful._tenant()) and m.id = any (frontier) and m.superseded_by is not null
                union
                select m.id from mindful.memory m
                where m.tenant = (select mindful._tenant()) and m.superseded_by = any (frontier)
                union
                select d.id
                from mindful.memory m
                join mindful.memory d on d.tenant = (select mindful._tenant()) and d.content_hash = m.content_hash
                    and d.kind <> 'message'
                where m.tenant = (select mindful._tenant()) and m.id = any (frontier)
                union
                select o.id
                from (
                    select distinct e.id from mindful.memory_evidence e
                    where e.tenant = (select mindful._tenant()) and e.source_id = any (frontier)
                ) e
                join mindful.memory d on d.tenant = (select mindful._tenant()) and d.id = e.id
                join mindful.memory_evidence o on o.tenant = (select mindful._tenant()) and o.id = e.id
                left join unnest(ids) g (id) on g.id = o.source_id
                group by o.id
                having bool_and(g.id is not null) or bool_or(d.kind = 'summary')
            ) n
            where not exists (select from unnest(ids) g (id) where g.id = n.id)
        );
        ids := ids || frontier;
    end loop;
    return ids;
end
$$;
comment on function _forget_reach(bigint[]) is
'Memories, and those that go with them: their other versions, their exact duplicates (messages excepted), the summaries that cover them, and what has no evidence but them. All of them are locked.';

create function _forget_replies(ids bigint[]) returns table (id bigint, session_id uuid)
language sql volatile parallel unsafe security invoker
begin atomic
    with gone as materialized (
        select i::text as id from pg_catalog.unnest(ids) i
    ),
    reply as materialized (
        select m.id, m.metadata from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.role = 'assistant'
    ),
    showed as (
        select r.id, coalesce(pg_catalog.jsonb_agg(s.value order by s.number) filter (where g.id is null), '[]') as memory_ids
        from reply r
        cross join mindful._memory_ids(r.metadata) s
        left join gone g on g.id = s.id
        group by r.id
        having pg_catalog.count(g.id) > 0
    ),
    answered as (
        select r.id from reply r join gone g on g.id = r.metadata ->> 'reply_to'
    ),
    told as (
        select id, pg_catalog.jsonb_build_object('memory_ids', w.memory_ids) as memory_ids, a.id is not null as is_answer
        from showed w full join answered a using (id)
    )
    update mindful.memory m
    set metadata = (case when t.is_answer then m.metadata - 'reply_to' else m.metadata end)
        || case when t.memory_ids -> 'memory_ids' = 'null' then '{}' else t.memory_ids end
    from told t
    where m.tenant = (select mindful._tenant()) and m.id = t.id
    returning m.id, m.session_id;
end;
comment on function _forget_replies(bigint[]) is 'Takes memories out of what replies say that they were shown or answer, and returns those replies.';

create function _forget_delete(ids bigint[], sessions uuid[]) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    showed uuid[] := array(
        select distinct m.session_id from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.id = any (ids) and m.session_id is not null
    );
    changed bigint;
    replies uuid[];
begin
    update mindful.session s set title = null
    where s.tenant = (select mindful._tenant()) and s.session_id = any (showed) and s.session_id <> all (sessions)
        and exists (
            select from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = any (ids) and m.session_id = s.session_id
                and starts_with(m.content, s.title)
        );
    get diagnostics changed = row_count;
    return query select null::bigint, 'session', 'changed', changed;
    for n in 1 .. cardinality(ids) by 10000 loop
        delete from mindful.memory m
        where m.tenant = (select mindful._tenant()) and m.id = any (ids[n:n + 9999]);
    end loop;
    delete from mindful.session s where s.tenant = (select mindful._tenant()) and s.session_id = any (sessions);
    select count(*), array_agg(distinct r.session_id) into changed, replies from mindful._forget_replies(ids) r;
    return query select null::bigint, 'memory', 'changed', changed;
    delete from mindful.kv_state k where k.tenant = (select mindful._tenant()) and k.session_id = any (showed || replies);
    get diagnostics changed = row_count;
    return query select null::bigint, 'kv_state', 'deleted', changed;
end
$$;
comment on function _forget_delete(bigint[], uuid[]) is
'Deletes memories and sessions, takes them out of the records of replies that were shown them and out of titles, and drops the kept states of conversations that showed them. Returns what the catalog does not tell.';

create function _forget(ids bigint[], sessions uuid[], scope text, dry_run boolean) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    is_request boolean := scope not in ('prune', 'retention');
    salt text := gen_random_uuid();
    hashes text[] := '{}';
    runs text[] := '{}';
    mentions jsonb := '[]';
    counts jsonb;
    receipt_id bigint;
begin
    if is_request then
        hashes := array(
            select distinct mindful._forget_hash(salt, m.content)
            from mindful.memory m where m.tenant = (select mindful._tenant()) and m.id = any (_forget.ids)
        );
        runs := array(
            select distinct r.run
            from mindful.memory m, mindful._runs(m.content) r
            where m.tenant = (select mindful._tenant()) and m.id = any (_forget.ids) and r.is_longest
        );
    end if;
    counts := (select coalesce(jsonb_agg(to_jsonb(c) - 'receipt_id'), '[]') from mindful._forget_counts(ids, sessions) c)
        || (select coalesce(jsonb_agg(to_jsonb(c) - 'receipt_id'), '[]') from mindful._forget_delete(ids, sessions) c where c.rows > 0);
    if is_request then
        mentions := mindful._forget_mentions(runs, salt);
        counts := counts || (
            select coalesce(jsonb_agg(to_jsonb(c)), '[]')
            from (
                select m ->> 'relation' as relation, 'mention' as action, count(*) as rows
                from jsonb_array_elements(mentions) m group by 1
            ) c
        );
    end if;
    if dry_run then
        raise exception using errcode = 'MF001', message = 'mindful: a dry run ends here', detail = counts::text;
    end if;
    insert into mindful.forget_receipt (scope, memory_ids, salt, hashes, counts, mentions)
    values (scope, _forget.ids, salt, hashes, counts, mentions)
    returning id into receipt_id;
    return query select receipt_id, c.relation, c.action, c.rows
        from jsonb_to_recordset(counts) c (relation text, action text, rows bigint);
exception when sqlstate 'MF001' then
    get stacked diagnostics counts = pg_exception_detail;
    return query select null::bigint, c.relation, c.action, c.rows
        from jsonb_to_recordset(counts) c (relation text, action text, rows bigint);
end
$$;
comment on function _forget(bigint[], uuid[], text, boolean) is
'Deletes memories and sessions with all that hangs on them, and leaves a receipt. A dry run does all of it and undoes it, so it tells the truth.';

create function _forget_filter(filter jsonb) returns bigint[]
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    since timestamptz := mindful._time_argument('since of filter', filter ->> 'since');
    before timestamptz := mindful._time_argument('before of filter', filter ->> 'before');
begin
    perform from mindful._array_elements('filter', jsonb_build_array(filter),
        '{kind,role,source,content,metadata,since,before}');
    if filter = '{}' then
        perform mindful._raise('22023', 'filter is empty', 'Use everything => true to forget all.');
    end if;
    return array(
        select m.id from mindful.memory m
        where m.tenant = (select mindful._tenant())
            and (filter -> 'kind' is null or m.kind = filter ->> 'kind')
            and (filter -> 'role' is null or m.role = filter ->> 'role')
            and (filter -> 'source' is null or m.source = filter ->> 'source')
            and (filter -> 'content' is null or strpos(lower(m.content), lower(filter ->> 'content')) > 0)
            and (filter -> 'metadata' is null or m.metadata @> mindful._metadata(filter -> 'metadata'))
            and (filter -> 'since' is null or m.created_at >= since)
            and (filter -> 'before' is null or m.created_at < before)
    );
end
$$;
comment on function _forget_filter(jsonb) is 'The tenant''s memories that a filter of memory_forget chooses.';

create function memory_forget(
    ids bigint[] default null,
    session_id uuid default null,
    filter jsonb default null,
    everything boolean default false,
    dry_run boolean default false
) returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    chosen bigint[];
    sessions uuid[] := '{}';
    scope text;
begin
    if num_nonnulls(memory_forget.ids, memory_forget.session_id, memory_forget.filter, nullif(everything, false)) <> 1 then
        perform mindful._raise('22023', 'nothing, or more than one thing, is named to be forgotten',
            'Give ids, a session_id, a filter, or everything => true.');
    elsif memory_forget.ids is not null then
        scope := 'ids';
        chosen := array(select distinct mindful._memory_argument('ids', i) from unnest(memory_forget.ids) i);
    elsif memory_forget.session_id is not null then
        scope := 'session';
        sessions := array[mindful._session_lock(memory_forget.session_id)];
        chosen := array(
            select m.id from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.session_id = memory_forget.session_id
        );
    elsif memory_forget.filter is not null then
        scope := 'filter';
        chosen := mindful._forget_filter(memory_forget.filter);
    else
        scope := 'everything';
        sessions := array(select s.session_id from mindful.session s where s.tenant = (select mindful._tenant()));
        chosen := array(select m.id from mindful.memory m where m.tenant = (select mindful._tenant()));
    end if;
    return query select * from mindful._forget(mindful._forget_reach(chosen), sessions, scope, coalesce(dry_run, false));
end
$$;
comment on function memory_forget(bigint[], uuid, jsonb, boolean, boolean) is
'Forgets memories for good: those with some ids, a session with all of its turns, those that pass a filter, or everything of the caller. A filter is an object of kind, role, source, content (a part of the text), metadata (contained), since and before (created_at); all that are given must hold. With them go their other versions, their exact duplicates (messages excepted), the summaries that cover them, what has no evidence but them, and every row that refers to one of them: embeddings, links, evidence, queue, reviews. Replies that were shown them no longer say so, titles taken from them are cleared, kept states of their conversations are dropped. Returns, and keeps as a receipt, the number of rows by table and action: deleted, changed, kept (an attached table still holds its rows), mention (rows that repeat their words, such as a reply, and stay: see memory_forget_check). A dry run does it all and undoes it. Not reached are backups, the write-ahead log, pages until VACUUM, and what a running connection has computed. All or nothing. Errors: 22004, 22023 (no or several choices, a bad filter), 42704 (no such memory or session of yours).';

-- What is left of what was forgotten.

create function _forget_hash(salt text, content text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.encode(
        pg_catalog.sha256(pg_catalog.convert_to(salt || pg_catalog.lower(mindful._squeeze(content)), 'UTF8')), 'hex');
end;
comment on function _forget_hash(text, text) is 'SHA-256 of a salt and a text, whose case and white space do not matter.';

create function _runs(content text) returns table (run text, is_longest boolean)
language sql immutable parallel safe security invoker rows 50
begin atomic
    with word as (
        select t.lexeme, pg_catalog.row_number() over (order by p.position, t.lexeme) as n, pg_catalog.count(*) over () as words
        from pg_catalog.unnest(pg_catalog.to_tsvector('pg_catalog.english', content)) t,
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
comment on function _runs(text) is
'Two, three and four lexemes of a text that follow one another; is_longest are those of four, or of as many as there are. A text that holds a longest run of another repeats its words.';

create function _tenant_columns() returns table (relation oid, name text, column_name text, type oid, number smallint, key text)
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
    where c.relnamespace = 'mindful'::pg_catalog.regnamespace and c.relkind = 'r' and c.relname <> 'forget_receipt'
        and exists (
            select from pg_catalog.pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant' and not t.attisdropped
        );
end;
comment on function _tenant_columns() is
'The columns of all tables that hold tenants'' rows, and the expression that gives the key of a row t.';

create function _text_columns() returns table (relation text, column_name text, key text)
language sql stable parallel safe security invoker
begin atomic
    select c.name, c.column_name, c.key
    from mindful._tenant_columns() c
    where c.type = any (array['text', 'text[]', 'jsonb']::pg_catalog.regtype[])
        and c.name <> 'memory_term' and c.column_name <> 'content_hash';
end;
comment on function _text_columns() is 'The columns that can hold words.';

create function _reference_columns() returns table (relation text, column_name text, key text, condition text)
language sql stable parallel safe security invoker
begin atomic
    select c.name, c.column_name, c.key,
        case c.type
            when 'bigint[]'::pg_catalog.regtype then pg_catalog.format('t.%I && $2', c.column_name)
            when 'jsonb'::pg_catalog.regtype then
                't.metadata ->> ''reply_to'' = any ($3) or exists (select from mindful._memory_ids(t.metadata) s where s.id = any ($3))'
            else pg_catalog.format('t.%I = any ($2)', c.column_name)
        end
    from mindful._tenant_columns() c
    where c.name = 'memory' and c.column_name in ('id', 'metadata')
        or c.name = 'memory_term' and c.column_name = 'id'
        or c.type = 'bigint[]'::pg_catalog.regtype and c.column_name like '%memory\_ids'
        or exists (
            select from pg_catalog.pg_constraint f
            where f.conrelid = c.relation and f.contype = 'f' and f.confrelid = 'mindful.memory'::pg_catalog.regclass
                and c.number = any (f.conkey)
        );
end;
comment on function _reference_columns() is
'The columns that name memories, and the condition that a row t names one of some ids, as bigint[] ($2) and as text[] ($3).';

create type forget_finding as (relation text, column_name text, key jsonb, finding text);
comment on type forget_finding is 'A row that still has to do with what was forgotten.';

create function _memory_holding(runs text[]) returns bigint[]
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
                    where t.tenant = (select mindful._tenant()) and t.lexeme = w.lexeme limit 1000
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
            where t.tenant = (select mindful._tenant()) and t.lexeme = r.lexemes[1]
            offset 0
        ) p
        where not exists (
            select from unnest(r.lexemes[2:]) l (lexeme)
            where not exists (
                select from mindful.memory_term t
                where t.tenant = (select mindful._tenant()) and t.lexeme = l.lexeme and t.id = p.id
            )
        )
    );
end
$$;
comment on function _memory_holding(text[]) is
'The memories that hold all lexemes of one of the runs, wherever they stand: by look-ups in memory_term, the rarest lexeme first.';

create function _forget_mentions(runs text[], salt text) returns jsonb
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    place record;
    candidates bigint[];
    words text[];
    mentions jsonb := '[]';
    found_rows jsonb;
begin
    if cardinality(runs) = 0 then
        return mentions;
    end if;
    candidates := mindful._memory_holding(runs);
    words := array(select distinct w.lexeme from unnest(runs) r (run), string_to_table(r.run, ' ') w (lexeme));
    for place in select c.relation, c.column_name, c.key from mindful._text_columns() c loop
        execute format($query$
            select coalesce(jsonb_agg(jsonb_build_object('relation', %1$L, 'column', %2$L, 'key', %3$s,
                'hash', mindful._forget_hash($3, t.%2$I::text))), '[]')
            from mindful.%1$I t
            where t.tenant = $1 and %4$s t.%2$I::text ~ '[^[:alnum:]]'  -- two words at least, and one of those
                and exists (select from unnest(to_tsvector('english', t.%2$I::text)) l where l.lexeme = any ($5))
                and exists (select from mindful._runs(t.%2$I::text) r where r.run = any ($2))
            $query$, place.relation, place.column_name, place.key,
            case when (place.relation, place.column_name) = ('memory', 'content') then 't.id = any ($4) and ' else '' end)
        into found_rows using mindful._tenant(), runs, salt, candidates, words;
        mentions := mentions || found_rows;
    end loop;
    return mentions;
end
$$;
comment on function _forget_mentions(text[], text) is
'The rows, in any table, whose words hold one of the runs, with a salted hash of the text.';

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
        perform mindful._raise('22023', 'neither a receipt nor ids are named, or both', 'Give one of them.');
    elsif ids is null then
        select r.* into receipt from mindful.forget_receipt r
        where r.tenant = (select mindful._tenant()) and r.id = receipt_id;
        if not found then
            perform mindful._raise('42704', format('there is no receipt %s', receipt_id), 'Your own are in mindful.forget_receipt.');
        end if;
        ids := receipt.memory_ids;
    end if;
    for place in select c.relation, c.column_name, c.key, c.condition from mindful._reference_columns() c loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'reference' from mindful.%1$I t where t.tenant = $1 and (%4$s)
            $query$, place.relation, place.column_name, place.key, place.condition)
        using mindful._tenant(), ids, ids::text[];
    end loop;
    for place in select c.relation, c.column_name, c.key from mindful._text_columns() c where receipt.hashes <> '{}' loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'copy' from mindful.%1$I t
            where t.tenant = $1 and mindful._forget_hash($2, t.%2$I::text) = any ($3)
            $query$, place.relation, place.column_name, place.key)
        using mindful._tenant(), receipt.salt, receipt.hashes;
    end loop;
    for place in
        select c.relation, c.column_name, c.key, jsonb_agg(m) as mentions
        from jsonb_array_elements(receipt.mentions) m
        join mindful._text_columns() c on c.relation = m ->> 'relation' and c.column_name = m ->> 'column'
        group by c.relation, c.column_name, c.key
    loop
        return query execute format($query$
            select %1$L, %2$L, %3$s, 'mention'
            from mindful.%1$I t
            join jsonb_array_elements($2) m on m -> 'key' = %3$s
            where t.tenant = $1 and m ->> 'hash' = mindful._forget_hash($3, t.%2$I::text)
            $query$, place.relation, place.column_name, place.key)
        using mindful._tenant(), place.mentions, receipt.salt;
    end loop;
end
$$;
comment on function memory_forget_check(bigint, bigint[]) is
'Looks in every table for what is left of what was forgotten by a receipt, or of some ids; no row is the proof that nothing is. Findings: reference (a row that names one of the ids), and by a receipt also copy (the same text, whatever its case and white space) and mention (a row that shared two to four words that follow one another when it was forgotten, and has not changed since). What mentions and copies hold was said elsewhere and is the caller''s to keep or forget. Errors: 22023, 42704 (no such receipt of yours).';

-- What is kept for how long. Forgetting is somebody's wish; pruning is housekeeping: it takes only what it names, and
-- facts outlive the turns they were drawn from.

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('retention_message_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets messages, and sessions without any; 0 is never.'),
    ('retention_fact_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets facts; 0 is never.'),
    ('retention_summary_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets summaries; 0 is never.'),
    ('retention_document_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets documents; 0 is never.'),
    ('retention_reflection_days', 'integer', 0, 36500, '{global,user}', '0',
        'After how many days retention_run forgets reflections; 0 is never.'),
    ('retention_memories', 'integer', 0, 1000000000, '{global,user}', '0',
        'How many memories, messages not counted, retention_run keeps of a tenant, the most valuable; 0 is all.'),
    ('retention_audit_days', 'integer', 0, 36500, '{global}', '0',
        'After how many days retention_run_all deletes generations, reviews, receipts of forgetting and settings that others replaced; 0 is never.'),
    ('memory_half_life_days', 'number', 0.01, 36500, '{global,user}', '30',
        'After how many idle days a memory of level data is worth half; 4 times as many for information, 16 for knowledge, 64 for wisdom.');

create function _memory_value(
    importance real, level text, created_at timestamptz, last_accessed_at timestamptz, half_life_days double precision
) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select importance * pg_catalog.power(0.5::double precision, greatest(0,
        extract(epoch from pg_catalog.now() - greatest(created_at, last_accessed_at))::double precision / 86400
        / (half_life_days * pg_catalog.power(4,
            pg_catalog.array_position(array['data', 'information', 'knowledge', 'wisdom'], level) - 1))));
end;
comment on function _memory_value(real, text, timestamptz, timestamptz, double precision) is
'What a memory is worth now: importance x 0.5 ^ (idle time / half-life of its level), idle since it was made or last shown (exponential forgetting, Ebbinghaus 1885).';

create function _memory_kept(kinds text[]) returns setof memory
language sql stable parallel safe security invoker
begin atomic
    select m.* from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.kind = any (kinds)
        and not exists (
            select from mindful.attachment a where a.tenant = (select mindful._tenant()) and a.source = m.source
        );
end;
comment on function _memory_kept(text[]) is 'The tenant''s memories of some kinds, without those that follow an attached table''s rows.';

create type prune_detail as (
    id bigint, kind text, value double precision, created_at timestamptz, last_accessed_at timestamptz, reason text
);
comment on type prune_detail is 'A memory that a policy does not keep, and why.';

create function memory_prune(
    older_than interval default null,
    unused_for interval default null,
    invalid_for interval default null,
    max_importance real default null,
    max_value real default null,
    keep integer default null,
    kinds text[] default '{fact,summary,document,reflection}',
    dry_run boolean default true
) returns setof prune_detail
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
#variable_conflict use_column
declare
    half_life double precision := mindful.setting_get('memory_half_life_days') #>> '{}';
    policy text := concat_ws(', ',
        'older than ' || older_than, 'unused for ' || unused_for, 'invalid for ' || invalid_for,
        'importance at most ' || max_importance, 'value at most ' || max_value,
        case when keep is not null then format('not among the %s most valuable', keep) end);
    unfit prune_detail[];
begin
    if policy = '' then
        perform mindful._raise('22023', 'no policy is given', 'Give at least one of older_than, unused_for, invalid_for, max_importance, max_value and keep.');
    elsif least(older_than, unused_for, invalid_for) < interval '0' or keep < 0 then
        perform mindful._raise('22023', 'a bound is negative', 'Give times and numbers from 0 up.');
    elsif kinds is null or array_position(kinds, null) is not null
        or not kinds <@ array['message', 'fact', 'summary', 'document', 'reflection']
    then
        perform mindful._raise('22023', format('kinds is %s', coalesce(kinds::text, 'null')),
            'Kinds are fact, document, summary, reflection and, if it must be, message.');
    end if;
    unfit := array(
        select (r.id, r.kind, r.value, r.created_at, r.last_accessed_at, policy)::mindful.prune_detail
        from (
            select m.id, m.kind, m.importance, m.created_at, m.valid_to, a.last_accessed_at, v.value,
                row_number() over (order by v.value desc, m.created_at desc, m.id desc) as rank
            from mindful._memory_kept(kinds) m
            left join mindful.memory_access a on a.tenant = (select mindful._tenant()) and a.id = m.id
            cross join lateral mindful._memory_value(m.importance, m.level, m.created_at, a.last_accessed_at, half_life) v (value)
        ) r
        where (older_than is null or r.created_at < now() - older_than)
            and (unused_for is null or greatest(r.created_at, r.last_accessed_at) < now() - unused_for)
            and (invalid_for is null or r.valid_to < now() - invalid_for)
            and (max_importance is null or r.importance <= max_importance)
            and (max_value is null or r.value <= max_value)
            and (keep is null or r.rank > keep)
        order by r.value, r.id
    );
    if not coalesce(dry_run, true) then
        perform mindful._forget(array(select u.id from unnest(unfit) u), '{}', 'prune', false);
    end if;
    return query select * from unnest(unfit);
end
$$;
comment on function memory_prune(interval, interval, interval, real, real, integer, text[], boolean) is
'Forgets what a policy does not keep, and returns it with the reason, least valuable first; with dry_run, which it has by default, it only returns it. All that is given must hold: older_than (age), unused_for (time since it was made or shown), invalid_for (time since valid_to passed), max_importance, max_value (importance x 0.5 ^ (idle time / half-life), see the setting memory_half_life_days), keep (all but so many, the most valuable of these kinds). Messages only where kinds says so. Facts stay when the turns they were drawn from go, without that evidence. Rows of attached tables are not touched. The receipt is in forget_receipt. Error 22023: no policy, or a bad one.';

create function retention_run() returns setof forget_count
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    message_days integer := mindful.setting_get('retention_message_days') #>> '{}';
    most integer := mindful.setting_get('retention_memories') #>> '{}';
    old_ids bigint[];
    empty_sessions uuid[] := '{}';
begin
    old_ids := array(
        select m.id
        from unnest('{message,fact,summary,document,reflection}'::text[]) k (kind)
        cross join lateral (select (mindful.setting_get(format('retention_%s_days', k.kind)) #>> '{}')::integer) s (days)
        cross join lateral mindful._memory_kept(array[k.kind]) m
        where s.days > 0 and m.created_at < now() - make_interval(days => s.days)
    );
    if most > 0 then
        old_ids := array(select unnest(old_ids) union select p.id from mindful.memory_prune(keep => most) p);
    end if;
    if message_days > 0 then
        empty_sessions := array(
            select s.session_id from mindful.session s
            where s.tenant = (select mindful._tenant()) and s.created_at < now() - make_interval(days => message_days)
                and not exists (
                    select from mindful.memory m
                    where m.tenant = (select mindful._tenant()) and m.session_id = s.session_id
                        and m.turn > 0 and m.created_at >= now() - make_interval(days => message_days)
                )
        );
    end if;
    if cardinality(old_ids) + cardinality(empty_sessions) > 0 then
        return query select * from mindful._forget(old_ids, empty_sessions, 'retention', false);
    end if;
end
$$;
comment on function retention_run() is
'Forgets what the settings retention_... no longer keep of the caller''s memories, and returns the receipt as memory_forget does; nothing where nothing is due. Rows of attached tables are not touched.';

create function retention_run_all() returns setof forget_count
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = ''
as $$
declare
    due timestamptz := now() - make_interval(days => nullif((mindful.setting_get('retention_audit_days') #>> '{}')::integer, 0));
    owner_of_rows text;
    forgotten mindful.forget_count[] := '{}';
    deleted bigint;
begin
    for owner_of_rows in
        with recursive owner as (
            (select m.tenant from mindful.memory m order by m.tenant limit 1)
            union all
            select (select m.tenant from mindful.memory m where m.tenant > o.tenant order by m.tenant limit 1)
            from owner o where o.tenant is not null
        )
        select o.tenant from owner o where o.tenant is not null
    loop
        perform set_config('mindful.tenant', owner_of_rows, true);
        forgotten := forgotten || array(select r from mindful.retention_run() r);
    end loop;
    delete from mindful.review r where r.created_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'review', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.generation g where g.created_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'generation', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.forget_receipt r where r.forgotten_at < due;
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'forget_receipt', 'deleted', deleted)::mindful.forget_count;
    delete from mindful.setting s
    where s.changed_at < due and exists (
        select from mindful.setting n
        where n.tenant = s.tenant and n.key = s.key and n.scope = s.scope and n.id > s.id
            and n.session_id is not distinct from s.session_id
    );
    get diagnostics deleted = row_count;
    forgotten := forgotten || (null, 'setting', 'deleted', deleted)::mindful.forget_count;
    return query
    select null::bigint, f.relation, f.action, sum(f.rows)::bigint
    from unnest(forgotten) f
    group by f.relation, f.action
    having sum(f.rows) > 0;
end
$$;
comment on function retention_run_all() is
'Runs retention_run for every tenant, by his own settings, and deletes records that are older than the setting retention_audit_days; returns how many rows of which tables. It takes no argument and does nothing but what the settings say, so it may run with the owner''s rights; for administrators and schedulers.';

grant select, insert on forget_receipt to mindful_user;
revoke execute on function
    _generation_forget(),
    _memory_ids(jsonb),
    _forget_paths(),
    _forget_counts(bigint[], uuid[]),
    _forget_reach(bigint[]),
    _forget_replies(bigint[]),
    _forget_delete(bigint[], uuid[]),
    _forget(bigint[], uuid[], text, boolean),
    _forget_filter(jsonb),
    memory_forget(bigint[], uuid, jsonb, boolean, boolean),
    _forget_hash(text, text),
    _runs(text),
    _tenant_columns(),
    _text_columns(),
    _reference_columns(),
    _memory_holding(text[]),
    _forget_mentions(text[], text),
    memory_forget_check(bigint, bigint[]),
    _memory_value(real, text, timestamptz, timestamptz, double precision),
    _memory_kept(text[]),
    memory_prune(interval, interval, interval, real, real, integer, text[], boolean),
    retention_run(),
    retention_run_all()
from public;
grant execute on function
    _generation_forget(),
    _memory_ids(jsonb),
    _forget_paths(),
    _forget_counts(bigint[], uuid[]),
    _forget_reach(bigint[]),
    _forget_replies(bigint[]),
    _forget_delete(bigint[], uuid[]),
    _forget(bigint[], uuid[], text, boolean),
    _forget_filter(jsonb),
    memory_forget(bigint[], uuid, jsonb, boolean, boolean),
    _forget_hash(text, text),
    _runs(text),
    _tenant_columns(),
    _text_columns(),
    _reference_columns(),
    _memory_holding(text[]),
    _forget_mentions(text[], text),
    memory_forget_check(bigint, bigint[]),
    _memory_value(real, text, timestamptz, timestamptz, double precision),
    _memory_kept(text[]),
    memory_prune(interval, interval, interval, real, real, integer, text[], boolean),
    retention_run()
to mindful_user;
grant execute on function retention_run_all() to mindful_admin;

-- calibration
create table calibrator (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    model text not null,
    with_memory boolean not null,
    tier integer not null check (tier between 0 and 3),
    features text[] not null,
    means double precision[] not null,
    scales double precision[] not null,
    weights double precision[] not null,
    intercept double precision not null,
    knots_x double precision[] not null default '{}',
    knots_y double precision[] not null default '{}',
    labels integer not null check (labels > 0),
    wrong integer not null check (wrong between 0 and labels),
    metrics jsonb not null,
    last_outcome bigint not null,
    supersedes bigint,
    adopted boolean not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, supersedes) references calibrator,
    check (cardinality(means) = cardinality(features) and cardinality(scales) = cardinality(features)
        and cardinality(weights) = cardinality(features) and cardinality(knots_x) = cardinality(knots_y))
);
create index on calibrator (tenant, model, with_memory, tier, id);
comment on table calibrator is
'Fitted numbers that turn an answer''s signals into the probability that it is right: g = intercept + sum of weights x (signal - mean) / scale, probability = 1 / (1 + exp(-g)), or by linear interpolation between the knots where there are any. Calibrators are added, never changed; the newest adopted one of its model, tier and kind of prompt is in force.';
comment on column calibrator.with_memory is 'Whether it is for answers with memories in the prompt: evidence raises a model''s confidence, whether it helps or not.';
comment on column calibrator.tier is 'Which signals it reads: 0 those that cost nothing, 1 also how near the answer is to the question (an embedding), 2 also the answer of a second model, the model''s fallback, 3 also four sampled answers.';
comment on column calibrator.features is 'Names of signals, as in decision.signals; a missing one counts as its mean.';
comment on column calibrator.labels is 'Labelled answers that it was fitted to.';
comment on column calibrator.metrics is 'How well it does on answers that it was not fitted to (cross-validation), each figure with the bounds of its 95% interval.';
comment on column calibrator.last_outcome is 'The newest label when it was made.';
comment on column calibrator.supersedes is 'The calibrator that was in force when this one was made.';
comment on column calibrator.adopted is 'Whether it was put in force: only if its log-loss on the newest labels was lower than that of the one it would supersede.';

create table threshold (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    calibrator_id bigint not null,
    budget_kind text not null check (budget_kind in ('answers', 'questions')),
    budget double precision not null check (budget > 0 and budget < 1),
    delta double precision not null check (delta > 0 and delta < 1),
    run integer not null check (run > 0),
    delta_spent double precision not null check (delta_spent between 0 and delta),
    value double precision,
    status text not null check (status in ('certified', 'infeasible', 'tightened')),
    labels integer not null,
    answered integer,
    wrong integer,
    bound double precision,
    reason text not null,
    supersedes bigint,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, calibrator_id) references calibrator,
    foreign key (tenant, supersedes) references threshold,
    check ((value is null) = (bound is null))
);
create index on threshold (tenant, calibrator_id, id);
comment on table threshold is
'Probabilities from which on answers are given unflagged, with what was promised. The newest of its calibrator is in force.';
comment on column threshold.budget_kind is
'answers: at most this share of the answers given is wrong, with probability 1 - delta. questions: at most this share of all questions gets a wrong answer, in the mean.';
comment on column threshold.run is 'The how-manieth test of this promise it was: run k may fail with probability 6 delta / (pi k)^2, so that all together fail with delta.';
comment on column threshold.value is 'NULL: none could be certified, and every answer is flagged.';
comment on column threshold.labels is 'Labelled answers that it was tested on; none of them had a part in the fit.';
comment on column threshold.answered is 'How many of them have at least this probability.';
comment on column threshold.wrong is 'How many of those are wrong.';
comment on column threshold.bound is 'Upper bound of the share that the budget limits.';
comment on column threshold.status is 'tightened: too many errors among answers served were noticed, see review_label.';

alter table calibrator enable row level security;
alter table calibrator force row level security;
create policy own on calibrator using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
alter table threshold enable row level security;
alter table threshold force row level security;
create policy own on threshold using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
select pg_catalog.pg_extension_config_dump('mindful.calibrator', '');
select pg_catalog.pg_extension_config_dump('mindful.calibrator_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.threshold', '');
select pg_catalog.pg_extension_config_dump('mindful.threshold_id_seq', '');

create function _calibrator_find(model text, with_memory boolean, tier integer)
returns table (
    id bigint,
    features text[],
    means double precision[],
    scales double precision[],
    weights double precision[],
    intercept double precision,
    knots_x double precision[],
    knots_y double precision[],
    threshold_id bigint,
    threshold double precision,
    status text,
    reason text
)
language sql stable parallel safe security invoker rows 1
begin atomic
    select c.id, c.features, c.means, c.scales, c.weights, c.intercept, c.knots_x, c.knots_y, t.id, t.value, t.status, t.reason
    from (
        select c.*
        from mindful.calibrator c
        where c.tenant = (select mindful._tenant()) and c.model = _calibrator_find.model
            and c.with_memory = _calibrator_find.with_memory and c.tier = _calibrator_find.tier and c.adopted
        order by c.id desc
        limit 1
    ) c
    left join lateral (
        select t.*
        from mindful.threshold t
        where t.tenant = (select mindful._tenant()) and t.calibrator_id = c.id
        order by t.id desc
        limit 1
    ) t on true;
end;
comment on function _calibrator_find(text, boolean, integer) is
'The calibrator in force for a model''s answers, with or without memories in the prompt, and its threshold.';

create table gold (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    question text not null,
    answers text[] not null,
    memories text[] not null default '{}',
    source text not null default '',
    created_at timestamptz not null default now(),
    primary key (tenant, id)
);
comment on table gold is 'Questions whose answers are known, to measure a model by. They are no memories: nothing recalls them.';
comment on column gold.answers is 'Any of these is right; none: the question has no answer, and every answer to it is wrong.';
comment on column gold.memories is 'Texts that the prompt showed as memories.';
comment on column gold.source is 'What belongs together, such as one conversation: never split between fitting and testing.';

create table decision (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    parent_id bigint,
    message_id bigint,
    gold_id bigint,
    generation_id bigint,
    answer text,
    model text not null,
    with_memory boolean not null,
    tier integer not null check (tier between 0 and 3),
    signals jsonb not null check (jsonb_typeof(signals) = 'object'),
    signal_ms jsonb not null default '{}',
    probability double precision not null check (probability between 0 and 1),
    calibrator_id bigint,
    threshold_id bigint,
    threshold double precision,
    action text not null check (action in ('answer', 'retrieve', 'retry', 'escalate', 'clarify', 'flag', 'abstain')),
    reason text not null,
    alternatives jsonb not null default '[]',
    propensity double precision not null default 1 check (propensity > 0 and propensity <= 1),
    total_ms double precision not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, parent_id) references decision on delete set null (parent_id),
    foreign key (tenant, message_id) references memory on delete cascade,
    foreign key (tenant, gold_id) references gold on delete cascade,
    foreign key (tenant, generation_id) references generation on delete set null (generation_id),
    foreign key (tenant, calibrator_id) references calibrator,
    foreign key (tenant, threshold_id) references threshold
);
create index on decision (tenant, message_id);
create index on decision (tenant, gold_id);
create index on decision (tenant, generation_id);
create index on decision (tenant, model, with_memory, id);
comment on table decision is 'What was done with an answer, and why: its signals, the probability that it is right, the threshold it was held to.';
comment on column decision.parent_id is 'The decision that led to this one: an answer that was retried, escalated or asked back about.';
comment on column decision.message_id is 'The answer; NULL for answers to gold questions and for those that were not shown.';
comment on column decision.answer is 'The answer, where no message holds it.';
comment on column decision.tier is 'Which signals were gathered; see calibrator.tier.';
comment on column decision.signal_ms is 'What the signals of each tier beyond the free ones cost, in milliseconds.';
comment on column decision.model is 'The generator; "first > second" where the second answered what the first was not sure of.';
comment on column decision.total_ms is 'What deciding took, beyond generating the answer.';
comment on column decision.probability is 'That the answer is right, by the calibrator; without one (right + 1) / (labels + 2) of the labels there are, the same for every answer (Laplace''s rule of succession).';
comment on column decision.alternatives is 'Other answers that were considered, each with what is known of it.';
comment on column decision.propensity is 'The probability with which this answer was offered for a label; calibration weights it by the inverse.';

alter table gold enable row level security;
alter table gold force row level security;
create policy own on gold using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
alter table decision enable row level security;
alter table decision force row level security;
create policy own on decision using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
select pg_catalog.pg_extension_config_dump('mindful.gold', '');
select pg_catalog.pg_extension_config_dump('mindful.gold_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.decision', '');
select pg_catalog.pg_extension_config_dump('mindful.decision_id_seq', '');

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('confidence_tier', 'integer', 0, 3, '{global,user,session}', '0',
        'Which signals are gathered for an answer that the free ones leave below the threshold: 1 compares it with the question, 2 asks the model''s fallback too, 3 samples four more answers.'),
    ('escalate', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether the answer of the model''s fallback is given where the model''s own is below its threshold and the other''s reaches its own.'),
    ('abstain_below', 'number', 0, 1, '{global,user,session}', '0',
        'Flagged answers with a lower probability are withheld: the reply says so, the answer is kept in decision.'),
    ('flag_notice', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether llm_chat ends a flagged reply with a sentence that says how sure it is; the stored message is without.');

create function _recall_coverage(query text, memory_ids bigint[]) returns table (coverage double precision, best double precision)
language sql stable parallel safe security invoker rows 1
begin atomic
    with term as (
        select q.lexeme, pg_catalog.ln(1 + total.memories / (1 + (
            select pg_catalog.count(*) from mindful.memory_term h
            where h.tenant = (select mindful._tenant()) and h.lexeme = q.lexeme
        ))) as idf
        from mindful._memory_total() total, mindful._terms(query) q
    ),
    held as (
        select p.id, t.lexeme, t.idf
        from term t
        join mindful.memory_term p on p.tenant = (select mindful._tenant()) and p.lexeme = t.lexeme and p.id = any (memory_ids)
    )
    select coalesce((select pg_catalog.sum(d.idf) from (select distinct h.lexeme, h.idf from held h) d) / s.total, 0),
        coalesce((select pg_catalog.max(m.idf) from (select pg_catalog.sum(h.idf) as idf from held h group by h.id) m) / s.total, 0)
    from (select pg_catalog.sum(t.idf) as total from term t) s;
end;
comment on function _recall_coverage(text, bigint[]) is
'Share of a query''s lexemes that memories hold, together and at best one of them, each lexeme weighted by its rarity ln(1 + memories / (1 + holders)): of what recall alone can say it tells best whether the evidence was found.';

create table outcome (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    message_id bigint,
    decision_id bigint,
    correct boolean not null,
    grader text not null check (grader in ('user', 'gold', 'rule', 'model')),
    grader_version integer not null default 1,
    note text,
    graded_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, message_id) references memory on delete cascade,
    foreign key (tenant, decision_id) references decision on delete cascade,
    check (num_nonnulls(message_id, decision_id) > 0)
);
create index on outcome (tenant, decision_id, id);
create index on outcome (tenant, message_id, id);
comment on table outcome is 'Whether answers were right, and who says so. A label is never overwritten: a later one is added and counts.';
comment on column outcome.grader_version is 'Version of the rule that graded: of _answer_grade for gold.';
alter table outcome enable row level security;
alter table outcome force row level security;
create policy own on outcome using (tenant = (select mindful._tenant()))
    with check (tenant = (select mindful._tenant()) and graded_by = current_user);
select pg_catalog.pg_extension_config_dump('mindful.outcome', '');
select pg_catalog.pg_extension_config_dump('mindful.outcome_id_seq', '');

create view latest_outcome with (security_invoker = true) as
select distinct on (o.tenant, o.decision_id, o.message_id)
    o.tenant, o.decision_id, o.message_id, o.correct, o.grader, o.grader_version, o.note, o.graded_by, o.created_at, o.id as outcome_id
from mindful.outcome o
order by o.tenant, o.decision_id, o.message_id, o.id desc;
comment on view latest_outcome is 'The label of each answer that counts: its latest.';

create function review_label(message_id bigint, correct boolean, note text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    label bigint;
    decided bigint;
begin
    if message_id is null or correct is null then
        perform mindful._raise('22004', 'message_id or correct is null',
            'Give the message_id that llm_chat_detail returned, and true or false.');
    elsif octet_length(note) > 8192 then
        perform mindful._raise('54000', format('note has %s bytes, more than 8192', octet_length(note)), 'Shorten it.');
    end if;
    perform from mindful.memory m
    where m.tenant = (select mindful._tenant()) and m.id = review_label.message_id and m.kind = 'message' and m.role = 'assistant';
    if not found then
        perform mindful._raise('42704', format('there is no answer %s', message_id),
            'The answers that you may label are in mindful.conversation, role assistant.');
    end if;
    select max(d.id) into decided from mindful.decision d
    where d.tenant = (select mindful._tenant()) and d.message_id = review_label.message_id;
    insert into mindful.outcome (message_id, decision_id, correct, grader, note)
    values (review_label.message_id, decided, review_label.correct, 'user', review_label.note)
    returning id into label;
    perform mindful._threshold_watch(d.threshold_id) from mindful.decision d
    where d.tenant = (select mindful._tenant()) and d.id = decided and d.threshold_id is not null;
    return label;
end
$$;
comment on function review_label(bigint, boolean, text) is
'Says whether an answer of the assistant was right, and returns the label''s id. Labels are what calibrate learns from; a later label of the same answer is added and counts in place of the earlier. Where the answer was given under a threshold, the errors among all answers given under it are watched, and too many tighten it at once (see the column status of threshold). Errors: 22004, 42704 (no such answer of yours), 54000 (note over 8192 bytes).';

create function _threshold_evidence(threshold_id bigint) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.max(s.log_evidence), 0)
    from (
        select pg_catalog.sum(pg_catalog.ln(1 + (o.wrong - t.budget) / (4 * t.budget))) over (order by o.outcome_id) as log_evidence
        from mindful.threshold t
        join lateral (
            select l.outcome_id, (d.action = 'answer' and not l.correct)::integer::double precision as wrong
            from mindful.decision d
            join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
            where d.tenant = (select mindful._tenant()) and d.threshold_id = t.id
                and case t.budget_kind when 'answers' then d.action = 'answer' else true end
        ) o on true
        where t.tenant = (select mindful._tenant()) and t.id = _threshold_evidence.threshold_id
    ) s;
end;
comment on function _threshold_evidence(bigint) is
'Logarithm of the evidence against a threshold''s promise: of the largest value that the product of 1 + lambda (error - budget), lambda = 1 / (4 budget), has had over the labelled answers given under it. While the promise holds it ever exceeds 1 / delta with probability delta at most (Ville''s inequality; Waudby-Smith and Ramdas 2024).';

create function _threshold_watch(threshold_id bigint) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    watched mindful.threshold;
begin
    select t.* into watched from mindful.threshold t
    where t.tenant = (select mindful._tenant()) and t.id = _threshold_watch.threshold_id
        and t.id = (
            select max(n.id) from mindful.threshold n where n.tenant = t.tenant and n.calibrator_id = t.calibrator_id
        )
        and t.value is not null;
    if not found or mindful._threshold_evidence(watched.id) < -ln(watched.delta) then
        return false;
    end if;
    insert into mindful.threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, status, labels, reason, supersedes)
    values (watched.calibrator_id, watched.budget_kind, watched.budget, watched.delta, watched.run, 0, 'tightened', 0,
        format('more errors among the answers given than a budget of %s allows; every answer is flagged until calibrate() certifies another threshold',
            watched.budget),
        watched.id);
    return true;
end
$$;
comment on function _threshold_watch(bigint) is
'Supersedes a threshold in force by one under which every answer is flagged, if the evidence against its promise is more than 1 / delta; tells whether it did. It never loosens: only calibrate() does, by a test.';

create function _answer_normal(content text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.btrim(pg_catalog.regexp_replace(pg_catalog.regexp_replace(pg_catalog.regexp_replace(
        pg_catalog.lower(pg_catalog.normalize(content, 'NFKC')), '[^[:alnum:]]+', ' ', 'g'), '\y(a|an|the)\y', ' ', 'g'), ' +', ' ', 'g'));
end;
comment on function _answer_normal(text) is
'A text as answers are compared: lower case, without punctuation and articles (SQuAD; Rajpurkar et al. 2016). Version 1.';

create function _answer_grade(answer text, answers text[]) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select exists (
        select from pg_catalog.unnest(answers) g (answer)
        where mindful._answer_normal(g.answer) <> ''
            and pg_catalog.strpos(' ' || mindful._answer_normal(_answer_grade.answer) || ' ', ' ' || mindful._answer_normal(g.answer) || ' ') > 0
    );
end;
comment on function _answer_grade(text, text[]) is
'Whether an answer is one of those known to be right, or holds one word by word, once both are normal. Version 1: it is frozen, since labels by different rules cannot be compared.';

create function _labelled(model text, with_memory boolean, tier integer)
returns table (
    decision_id bigint,
    signals jsonb,
    tier integer,
    correct boolean,
    propensity double precision,
    source text,
    fitting boolean,
    outcome_id bigint
)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select d.id, d.signals, d.tier, l.correct, d.propensity, s.source,
        pg_catalog.strpos('01234567', pg_catalog.left(pg_catalog.md5(s.source), 1)) > 0, l.outcome_id
    from mindful.decision d
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    left join mindful.gold g on g.tenant = d.tenant and g.id = d.gold_id
    left join mindful.memory m on m.tenant = d.tenant and m.id = d.message_id,
    lateral (
        select coalesce('gold ' || nullif(g.source, ''), 'session ' || m.session_id, 'decision ' || d.id) as source
    ) s
    where d.tenant = (select mindful._tenant()) and d.model = _labelled.model
        and d.with_memory = _labelled.with_memory and d.tier >= _labelled.tier
    order by l.outcome_id;
end;
comment on function _labelled(text, boolean, integer) is
'A model''s labelled answers whose signals a calibrator of the tier can read, oldest label first. Source names what must not be split between fitting and testing, and fitting, by its hash, on which side it is: for ever, so that no calibrator is tested on what it or an earlier one was fitted to.';

create function _label_count(model text, with_memory boolean) returns table (labels bigint, correct bigint)
language sql stable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.count(*), pg_catalog.count(*) filter (where l.correct)
    from mindful._labelled(model, with_memory, 0) l;
end;
comment on function _label_count(text, boolean) is 'How many labelled answers of a model there are, and how many of them are right.';

create function calibration_import(
    gold text,
    model text default null,
    source text default '',
    memories integer default 3,
    max_tokens integer default 64,
    tier integer default 0
) returns integer
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.gold import calibration_import
return calibration_import(gold, model, source, memories, max_tokens, tier)
$python$;
comment on function calibration_import(text, text, text, integer, integer, integer) is
'Has a generator (NULL: the default one) answer questions whose answers are known, as llm_chat would in a new session, grades the answers (see _answer_grade), and returns how many there were: labels for calibrate. Gold is JSON Lines, one object a line with question, answers (an array of texts, any of which is right; empty where no answer is) and, if wanted, memories (texts that are shown in place of recalled ones) and source (what must not be split between fitting and testing; else the argument). Signals are gathered up to the tier (see calibrator.tier); from tier 2 on the fallback''s answers are labelled too, as those of "first > second". Nothing is remembered as a memory. All or none: the error names the line. Errors: 22004, 22023 (broken line), 42704 (no such model), 54000 (a question longer than the context), 55000 (no embedder or fallback for the tier), 57014 (cancelled).';

create type calibration_detail as (
    model text,
    with_memory boolean,
    tier integer,
    labels integer,
    wrong integer,
    calibrator_id bigint,
    threshold_id bigint,
    status text,
    threshold double precision,
    bound double precision,
    coverage double precision,
    metrics jsonb,
    reason text
);
comment on type calibration_detail is 'What calibrate made of one kind of a model''s answers.';

create function calibrate(
    model text default null,
    error_budget double precision default 0.1,
    delta double precision default 0.1,
    budget_kind text default 'answers'
) returns setof calibration_detail
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 2
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.calibration import calibrate
return calibrate(model, error_budget, delta, budget_kind)
$python$;
comment on function calibrate(text, double precision, double precision, text) is
'Learns from the labels of a generator''s answers (NULL: the default one) how probable it is that an answer is right, and certifies from which probability on answers may be given unflagged: at most a share error_budget of the answers given is wrong (budget_kind answers, with probability 1 - delta over the labels; by exact binomial tests in a fixed sequence), or at most that share of all questions gets a wrong answer (questions, in the mean; conformal risk control). One row for answers without memories in the prompt, one for those with, and one for each tier of signals that were gathered. Half of the labels are fitted to, half tested on. From 30 labels on; one signal for every 8 labels of the rarer kind; isotonic regression from 1000 labels with 200 of the rarer kind. A new calibrator takes the place of one in force only if it does better on labels that are newer than that one; a repeated test of the same promise spends its share of delta. Status: certified, infeasible (the reason says what is lacking; every answer is flagged) or uncalibrated. Coverage is the share of the labelled answers that the threshold lets through; metrics are figures on answers not fitted to, each with the bounds of its 95% interval. Needs scikit-learn. Errors: 22004, 22023 (budget or delta not between 0 and 1), 42704 (no such model), 55000 (no labels, too few, or of one kind only), 0A000 (scikit-learn not installed).';

create view decision_log with (security_invoker = true) as
select d.tenant, d.id as decision_id, d.parent_id, d.created_at, d.message_id, d.model, d.with_memory, d.tier, d.probability,
    d.threshold, d.action, d.reason, l.correct, l.grader, d.signals, w.weights, d.alternatives, d.signal_ms, d.total_ms,
    t.budget, t.budget_kind, t.delta, d.calibrator_id, d.threshold_id
from mindful.decision d
left join mindful.threshold t on t.tenant = d.tenant and t.id = d.threshold_id
left join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
left join lateral (
    select jsonb_object_agg(f.name, round((f.weight * (coalesce((d.signals ->> f.name)::double precision, f.mean) - f.mean)
        / f.scale)::numeric, 4)) as weights
    from mindful.calibrator c,
        unnest(c.features, c.means, c.scales, c.weights) f (name, mean, scale, weight)
    where c.tenant = d.tenant and c.id = d.calibrator_id
) w on true;
comment on view decision_log is
'Why each answer was given, flagged, escalated or withheld: its signals, what each added to its log-odds of being right (weights), the threshold and the budget that it keeps, the alternatives, and whether it was right.';

create view label_queue with (security_invoker = true) as
select d.tenant, d.message_id, d.id as decision_id, q.content as question, a.content as answer, d.probability, d.threshold,
    d.action, d.created_at
from mindful.decision d
join mindful.memory a on a.tenant = d.tenant and a.id = d.message_id
left join mindful.memory q on q.tenant = a.tenant and q.session_id = a.session_id
    and case when a.metadata ? 'reply_to' then q.id = (a.metadata ->> 'reply_to')::bigint else q.turn = a.turn - 1 end
where not exists (
    select from mindful.outcome o where o.tenant = d.tenant and o.decision_id = d.id
);
comment on view label_queue is
'Answers without a label, for review_label. Those whose probability is nearest to the threshold teach most: order by abs(probability - coalesce(threshold, 0.5)).';

-- As the views for BI: figures alone, with the owner's rights, and the rows chosen here.
create view reliability_curve with (security_barrier = true) as
select s.tenant, s.model, s.with_memory, s.tier, s.bin, count(*) as answers, avg(s.probability) as mean_probability,
    avg(s.correct::integer) as share_right
from (
    select d.tenant, d.model, d.with_memory, d.tier, d.probability, l.correct,
        ntile(10) over (partition by d.tenant, d.model, d.with_memory, d.tier order by d.probability) as bin
    from mindful.decision d
    join lateral (
        select o.correct from mindful.outcome o
        where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
    ) l on true
    where d.calibrator_id is not null
        and (d.tenant = (select mindful._tenant()) or (select mindful._reads_all()))
) s
group by s.tenant, s.model, s.with_memory, s.tier, s.bin;
comment on view reliability_curve is
'Labelled answers in ten bins of equal size by the probability that they were given: on the diagonal, mean_probability and share_right are the same. For oneself, or for mindful_reader for all.';

create view risk_coverage with (security_barrier = true) as
select s.tenant, s.model, s.with_memory, s.probability, s.rank::double precision / s.answers as coverage,
    s.wrong::double precision / s.rank as risk
from (
    select d.tenant, d.model, d.with_memory, d.probability,
        count(*) over ranked as rank, count(*) filter (where not l.correct) over ranked as wrong,
        count(*) over (partition by d.tenant, d.model, d.with_memory) as answers
    from mindful.decision d
    join lateral (
        select o.correct from mindful.outcome o
        where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
    ) l on true
    where d.tenant = (select mindful._tenant()) or (select mindful._reads_all())
    window ranked as (partition by d.tenant, d.model, d.with_memory order by d.probability desc)
) s;
comment on view risk_coverage is
'For each labelled answer: which share of all labelled answers has at least its probability (coverage), and how many of those are wrong (risk). For oneself, or for mindful_reader for all.';

create view signal_quality with (security_barrier = true) as
select s.tenant, s.model, s.with_memory, s.signal, s.right_answers, s.wrong_answers, s.auroc,
    greatest(s.auroc - 1.96 * s.error, 0) as low, least(s.auroc + 1.96 * s.error, 1) as high
from (
    select r.tenant, r.model, r.with_memory, r.signal, r.right_answers, r.wrong_answers, r.auroc,
        sqrt((r.auroc * (1 - r.auroc) + (r.right_answers - 1) * (r.auroc / (2 - r.auroc) - r.auroc ^ 2)
            + (r.wrong_answers - 1) * (2 * r.auroc ^ 2 / (1 + r.auroc) - r.auroc ^ 2))
            / (r.right_answers * r.wrong_answers)) as error
    from (
        select v.tenant, v.model, v.with_memory, v.signal, count(*) filter (where v.correct) as right_answers,
            count(*) filter (where not v.correct) as wrong_answers,
            ((sum(v.rank) filter (where v.correct) - count(*) filter (where v.correct)
                * (count(*) filter (where v.correct) + 1) / 2.0)
                / nullif(count(*) filter (where v.correct) * count(*) filter (where not v.correct), 0))::double precision
                as auroc
        from (
            select d.tenant, d.model, d.with_memory, e.key as signal, l.correct,
                rank() over signals + (count(*) over (
                    partition by d.tenant, d.model, d.with_memory, e.key, e.value::double precision) - 1) / 2.0 as rank
            from mindful.decision d
            join lateral (
        select o.correct from mindful.outcome o
        where o.tenant = d.tenant and o.decision_id = d.id order by o.id desc limit 1
    ) l on true,
                jsonb_each_text(d.signals) e
            where d.tenant = (select mindful._tenant()) or (select mindful._reads_all())
            window signals as (partition by d.tenant, d.model, d.with_memory, e.key order by e.value::double precision)
        ) v
        group by v.tenant, v.model, v.with_memory, v.signal
    ) r
) s
where s.auroc is not null;
comment on view signal_quality is
'How well each signal alone ranks right answers above wrong ones: AUROC (0.5 is chance; below, high values are a bad sign) with the bounds of its 95% interval (Hanley and McNeil 1982). For oneself, or for mindful_reader for all.';

comment on column model.options is 'Options of the provider: context_length, threads (default 1), and of a generator also system_prompt, layout, a text with {memories} and {message} that says how recalled memories stand with a message, template, a Jinja chat template in place of the file''s, stop, texts that end every answer, and prompt_lookup (default 0, at most 32): how many tokens are guessed at once, at temperature 0, where an answer repeats what stands before; it changes no answer, and is faster where texts are copied (15 is a good choice).';
comment on function llm_chat_detail(text, uuid, text, integer, real, integer, integer) is
'As llm_chat, with where the reply is stored (message_id), the memories it was shown, its cost, its confidence as in llm_generate_detail, and what was decided about it: probability is that of being right (see the table decision), the action answer where it reaches the threshold, else flag; the threshold is NULL until calibrate() has certified one; the reason says why.';

alter type chat_detail add attribute probability real, add attribute reason text, add attribute decision_id bigint;

grant select, insert on calibrator, threshold, gold, decision, outcome to mindful_user;
grant select on latest_outcome, decision_log, label_queue to mindful_user;
grant select on reliability_curve, risk_coverage, signal_quality to mindful_user, mindful_reader;
revoke execute on function
    _calibrator_find(text, boolean, integer),
    _recall_coverage(text, bigint[]),
    review_label(bigint, boolean, text),
    _threshold_evidence(bigint),
    _threshold_watch(bigint),
    _answer_normal(text),
    _answer_grade(text, text[]),
    _labelled(text, boolean, integer),
    _label_count(text, boolean),
    calibration_import(text, text, text, integer, integer, integer),
    calibrate(text, double precision, double precision, text)
from public;
grant execute on function
    _calibrator_find(text, boolean, integer),
    _recall_coverage(text, bigint[]),
    review_label(bigint, boolean, text),
    _threshold_evidence(bigint),
    _threshold_watch(bigint),
    _answer_normal(text),
    _answer_grade(text, text[]),
    _labelled(text, boolean, integer),
    _label_count(text, boolean),
    calibration_import(text, text, text, integer, integer, integer),
    calibrate(text, double precision, double precision, text)
to mindful_user;
