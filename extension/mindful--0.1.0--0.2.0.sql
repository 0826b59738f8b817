\echo Use "ALTER EXTENSION mindful UPDATE TO '0.2.0'" to load this file. \quit

create table setting_definition (
    key text primary key,
    type text not null check (type in ('integer', 'number', 'boolean', 'text')),
    low double precision,
    high double precision,
    scopes text[] not null check (scopes <@ array['global', 'user', 'session']),
    initial jsonb not null,
    description text not null
);
comment on table setting_definition is 'What can be set: type, range, where, and the value where nobody has set it.';
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
select d.key, mindful.setting_get(d.key) as value, d.initial, d.type, d.low, d.high, d.scopes, d.description
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
    truncate boolean default false
) returns text[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.batch import llm_generate_many
return llm_generate_many(prompts, model, max_tokens, temperature, seed, system_prompt, stop, truncate)
$python$;
comment on function llm_generate_many(text[], text, integer, real, integer, text, text[], boolean) is
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
    llm_generate_many(text[], text, integer, real, integer, text, text[], boolean),
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
    llm_generate_many(text[], text, integer, real, integer, text, text[], boolean),
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
    add constraint memory_validity check (valid_from < valid_to),
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
create index on memory_link (tenant, target_id);
comment on table memory_link is 'What one memory has to do with another.';

create table memory_evidence (
    tenant text not null default _tenant(),
    id bigint not null,
    source_id bigint not null,
    quote text not null check (quote <> ''),
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

-- recall
drop function memory_recall(text, integer, text[]);
drop function _memory_lexical(text, integer, text[]);
drop function _memory_nearest(text, integer, text[]);
create index memory_valid_from on memory (tenant, valid_from) where valid_from is not null;
create index memory_valid_to on memory (tenant, valid_to) where valid_to is not null;
create index memory_term_sample on memory_term (tenant, lexeme) where hashint8(id) & 31 = 0;

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('recall_weight_bm25', 'number', 0, 1, '{global,user}', '0',
        'Weight of a memory''s own words in memory_recall.'),
    ('recall_weight_bm25_context', 'number', 0, 1, '{global,user}', '0.6',
        'Weight of a memory''s words together with those of the turns before and after it.'),
    ('recall_weight_similarity', 'number', 0, 1, '{global,user}', '0.4',
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
        'After how many days the boost by recency is half as large.');

-- OFFSET 0 within LATERAL, below, makes of a join a look-up in an index for each candidate. Estimates, which are of all
-- tenants, made of it a hash join over all of a tenant's memories.

create type recall_filter as (kinds text[], metadata jsonb, session_id uuid, as_of timestamptz);
comment on type recall_filter is 'Which memories may be recalled: NULL is any kind, metadata, session or time of validity.';

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
        select jsonb_object_agg(d.key, coalesce(own.value, everyones.value, d.initial))
        from mindful.setting_definition d
        left join lateral (
            select nullif(s.value, 'null') as value from mindful.setting s
            where s.tenant = (select mindful._tenant()) and s.key = d.key and s.scope = 'user'
            order by s.id desc limit 1
        ) own on true
        left join lateral (
            select nullif(s.value, 'null') as value from mindful.setting s
            where s.tenant = '' and s.key = d.key and s.scope = 'global'
            order by s.id desc limit 1
        ) everyones on true
        where d.key >= 'recall_' and d.key < 'recall`'
    );
end
$$;
comment on function _recall_options() is 'The settings recall_... in force, as setting_get gives them, by one plan that the session keeps.';

create function _recall_dense(embedding vector, embedder text, candidates integer, filter recall_filter)
returns table (id bigint, similarity double precision)
language plpgsql stable parallel restricted security invoker rows 70
set search_path = pg_catalog, mindful, pg_temp
set hnsw.iterative_scan = 'strict_order'
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
            sum(t.holders) over rarest <= 2000 or row_number() over rarest = 1 as leads
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
'The postings of the memories that best match a query by Okapi BM25, k1 = 1.2 and b = 0.4 (Robertson and Zaragoza 2009), with frequencies divided by 1 - b + b x length / mean length. Candidates come from the rarest lexemes, as many as have 2000 postings in all and at least one (MaxScore, Turtle and Flood 1995, without its guarantee), and from the newest 20000 of a lexeme''s; the common ones are looked up for the candidates. A lexeme counts at most 255 times in a text, as in tsvector.';

create function _recall_scores(
    query text,
    embedding vector,
    embedder text,
    candidates integer,
    pool integer,
    filter recall_filter,
    options jsonb
)
returns table (
    id bigint,
    score double precision,
    bm25 double precision,
    bm25_context double precision,
    similarity double precision,
    similarity_context double precision
)
language plpgsql stable parallel restricted security invoker rows 30
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
begin
    return query
    with dense as materialized (
        select d.id, d.similarity,
            1 - (max(d.similarity) over () - d.similarity)
                / greatest(max(d.similarity) over () - min(d.similarity) over (), 0.1) as share
        from mindful._recall_dense(embedding, embedder, candidates, filter) d
    ),
    posting as materialized (
        select l.* from mindful._recall_lexical(query, candidates, filter) l
    ),
    lexical as materialized (
        select p.id, sum(p.idf * 2.2 * p.frequency / (p.frequency + 1.2)) as bm25
        from posting p
        group by p.id
    ),
    -- A place is a turn of a session, or a memory outside of any.
    found as materialized (
        select m.id, m.session_id, m.turn, case when m.turn is null then m.id end as alone
        from (select d.id from dense d union select l.id from lexical l) c
        cross join lateral (
            select m.id, m.session_id, m.turn from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = c.id
            offset 0
        ) m
    ),
    near as materialized (
        select f.id, f.session_id, f.turn + s.step as turn, f.alone, s.step <> 0 as beside
        from found f
        join (values (0), (-1), (1)) s (step) on s.step = 0 or f.turn is not null
    ),
    term as (
        select n.session_id, n.turn, n.alone, p.idf,
            sum(p.frequency * case when n.beside then neighbour_share else 1 end) as frequency
        from posting p join near n using (id)
        group by n.session_id, n.turn, n.alone, p.term, p.idf
    ),
    part as (
        select t.session_id, t.turn, t.alone, t.idf * 2.2 * t.frequency / (t.frequency + 1.2) as bm25_context,
            0::double precision as bm25, 0::double precision as share, 0::double precision as share_context
        from term t
        union all
        select n.session_id, n.turn, n.alone, 0, l.bm25, 0, 0
        from lexical l join near n using (id) where not n.beside
        union all
        select n.session_id, n.turn, n.alone, 0, 0, case when n.beside then 0 else d.share end, case when n.beside then d.share else 0 end
        from dense d join near n using (id)
    ),
    place as (
        select p.session_id, p.turn, p.alone, sum(p.bm25) as bm25, sum(p.bm25_context) as bm25_context,
            sum(p.share) as share, sum(p.share_context) as share_context
        from part p
        group by p.session_id, p.turn, p.alone
    ),
    best as materialized (
        select p.*,
            weight_bm25 * coalesce(p.bm25 / nullif(max(p.bm25) over (), 0), 0)
            + weight_bm25_context * coalesce(p.bm25_context / nullif(max(p.bm25_context) over (), 0), 0)
            + weight_similarity * p.share
            + weight_similarity_context * p.share_context as score
        from place p
        order by score desc
        limit pool
    ),
    placed as (
        select b.alone as id, b.* from best b where b.alone is not null
        union all
        select m.id, b.*
        from best b
        cross join lateral (
            select m.id from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.session_id = b.session_id and m.turn = b.turn
            offset 0
        ) m
    )
    select p.id, p.score, nullif(p.bm25, 0), nullif(p.bm25_context, 0), d.similarity, p.share_context
    from placed p left join dense d using (id);
end
$$;
comment on function _recall_scores(text, vector, text, integer, integer, recall_filter, jsonb) is
'The memories with the best weighted sums of what the arms found, boosts not counted. bm25_context is BM25 of a turn and those before and after it as fields of one text (BM25F), whose words count by recall_neighbour_share. Similarities are scaled to [0, 1] over the candidates, or to less where they are all within 0.1; similarity_context is the sum of the scaled similarities of the turns before and after it. Candidates alone are seen, so a neighbour that no arm found adds nothing.';

create function _memory_recall(
    query text,
    embedding vector,
    embedder text,
    k integer,
    filter recall_filter,
    options jsonb
)
returns table (
    id bigint,
    score double precision,
    bm25 double precision,
    bm25_context double precision,
    similarity double precision,
    similarity_context double precision,
    recency double precision,
    importance double precision,
    access double precision
)
language plpgsql stable parallel restricted security invoker rows 10
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    half_life_days double precision := options ->> 'recall_half_life_days';
    recency_boost double precision := options ->> 'recall_boost_recency';
    importance_boost double precision := options ->> 'recall_boost_importance';
    access_boost double precision := options ->> 'recall_boost_access';
    narrow boolean := filter.kinds is not null or filter.metadata is not null or filter.session_id is not null;
    hidden integer := (
        select count(*) from (
            (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.valid_to <= filter.as_of limit 101)
            union all
            (select from mindful.memory m where m.tenant = (select mindful._tenant()) and m.valid_from > filter.as_of limit 101)
        ) h
    );
begin
    -- A few that are not valid are made up for by as many candidates more; asking memory about each costs more.
    if hidden > 100 then
        narrow := true;
    end if;
    if narrow then
        hidden := 0;
    end if;
    return query
    with boosted as (
        select s.*, m.content_hash,
            power(0.5, greatest(extract(epoch from filter.as_of - m.created_at)::double precision, 0)
                / (86400 * half_life_days)) as recency,
            m.importance::double precision as importance,
            coalesce(a.access_count / (a.access_count + 5.0::double precision), 0) as access
        from mindful._recall_scores(query, embedding, embedder, 50 + 2 * k + hidden, 20 + 2 * k + hidden,
            case when narrow then filter end, options) s
        cross join lateral (
            select m.content_hash, m.created_at, m.importance from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = s.id and mindful._recall_admits(filter, m)
            offset 0
        ) m
        left join lateral (
            select a.access_count from mindful.memory_access a
            where a.tenant = (select mindful._tenant()) and a.id = s.id
            offset 0
        ) a on true
    ),
    scored as (
        select b.*, b.score * (1 + greatest(-0.1, least(0.1,
            recency_boost * b.recency + importance_boost * (2 * b.importance - 1) + access_boost * b.access))) as final
        from boosted b
    ),
    single as (
        select distinct on (s.content_hash) s.* from scored s order by s.content_hash, s.final desc, s.id desc
    )
    select s.id, s.final, s.bm25, s.bm25_context, s.similarity, s.similarity_context, s.recency, s.importance, s.access
    from single s
    order by s.final desc, s.id desc
    limit k;
end
$$;
comment on function _memory_recall(text, vector, text, integer, recall_filter, jsonb) is
'memory_recall for a query that is embedded already: ids and scores.';

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
    access double precision
);
comment on type recalled_memory is 'A memory that matches a query, with every component of its score.';
comment on column recalled_memory.score is 'The weighted sum of the arms, each scaled to at most 1, raised or lowered by at most a tenth; the weights and boosts are settings.';
comment on column recalled_memory.similarity is 'Cosine similarity of the embeddings; NULL where it was not among the nearest.';
comment on column recalled_memory.bm25 is 'Okapi BM25 of the memory''s own words; NULL where none of the query''s was found in it.';
comment on column recalled_memory.bm25_context is 'BM25 of the words of a turn and those beside it; NULL where none of the query''s was found in them.';
comment on column recalled_memory.similarity_context is 'The scaled similarities of the turns before and after, added.';
comment on column recalled_memory.recency is 'From 1, just made, halved every recall_half_life_days.';
comment on column recalled_memory.access is 'n / (n + 5) of a memory that was used n times.';

create function memory_recall(
    query text,
    k integer default 5,
    kinds text[] default null,
    metadata jsonb default null,
    session_id uuid default null,
    as_of timestamptz default now(),
    max_tokens integer default null
) returns setof recalled_memory
language plpgsql stable parallel restricted security invoker rows 5
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    asked text := mindful._text_argument('query', query);
    wanted integer := mindful._integer_argument('k', k, 1, 1000);
    budget integer := case when max_tokens is not null then mindful._integer_argument('max_tokens', max_tokens, 1, 2147483647) end;
    filter mindful.recall_filter := row(kinds, metadata, session_id, coalesce(as_of, now()));
    embedder text := (select f.name from mindful._model_find('embedder', null) f);
begin
    return query
    with shown as (
        select m.id, m.content, m.kind, r.score, r.similarity, r.bm25, m.metadata, m.session_id, m.turn, m.role, m.source,
            m.created_at, r.bm25_context, r.similarity_context, r.recency, r.importance, r.access,
            sum(ceil(char_length(m.content) / 4.0)) over (order by r.score desc, r.id desc) as tokens
        from mindful._memory_recall(asked,
            case when embedder is not null then mindful.llm_embed(asked, embedder) end, embedder, wanted, filter, mindful._recall_options()) r
        cross join lateral (
            select m.* from mindful.memory m
            where m.tenant = (select mindful._tenant()) and m.id = r.id
            offset 0
        ) m
    )
    select s.id, s.content, s.kind, s.score, s.similarity, s.bm25, s.metadata, s.session_id, s.turn, s.role, s.source,
        s.created_at, s.bm25_context, s.similarity_context, s.recency, s.importance, s.access
    from shown s
    where budget is null or s.tokens <= budget
    order by s.score desc, s.id desc;
end
$$;
comment on function memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer) is
'The k memories that best match a query in meaning and in words, those of the turns beside them counted in, best first. kinds, metadata (an object that theirs contains) and session_id say which are asked for; valid at as_of, from valid_from until before valid_to, they are all. max_tokens ends the list before it has more, a token taken for four characters: counting them would load the generator. Memories with the same text come once. No model but the embedder runs; works in read-only transactions. Errors: 22004 (NULL), 22023 (empty query, k outside 1 to 1000, max_tokens below 1).';

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
    _recall_admits(recall_filter, memory),
    _recall_options(),
    _recall_dense(vector, text, integer, recall_filter),
    _recall_terms(text),
    _recall_lexical(text, integer, recall_filter),
    _recall_scores(text, vector, text, integer, integer, recall_filter, jsonb),
    _memory_recall(text, vector, text, integer, recall_filter, jsonb),
    memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer),
    memory_access_insert(bigint[])
from public;
grant execute on function
    _recall_admits(recall_filter, memory),
    _recall_options(),
    _recall_dense(vector, text, integer, recall_filter),
    _recall_terms(text),
    _recall_lexical(text, integer, recall_filter),
    _recall_scores(text, vector, text, integer, integer, recall_filter, jsonb),
    _memory_recall(text, vector, text, integer, recall_filter, jsonb),
    memory_recall(text, integer, text[], jsonb, uuid, timestamptz, integer),
    memory_access_insert(bigint[])
to mindful_user;
-- end of recall
