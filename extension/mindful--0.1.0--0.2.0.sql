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
    primary key (tenant, id),
    check ((status in ('completed', 'failed')) = (finished_at is not null)),
    check ((status = 'failed') = (error is not null))
);
create unique index consolidation_open on consolidation (tenant, type) where status in ('pending', 'running');
comment on table consolidation is 'Runs that make facts of texts (extract) and training samples of facts (replay). A run that has been cut by its limits, or whose connection was lost, stays running and is taken up by the next call.';
comment on column consolidation.model is 'The generator that facts were drawn with, or that samples are for; NULL for rules.';
comment on column consolidation.request is 'What was asked for.';
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

revoke execute on function
    _consolidate(bigint,timestamp with time zone,text,text,integer,integer),
    _consolidation_close(bigint,jsonb,text,boolean),
    _consolidation_finish(bigint),
    _consolidation_lock(),
    _consolidation_open(text,text,jsonb),
    _consolidation_pending(timestamp with time zone,text[]),
    _counts_add(jsonb,jsonb),
    _evidence_confidence(text,bigint),
    _evidence_lost(),
    _limit(jsonb,text,integer,integer),
    _link_strengthen(timestamp with time zone),
    _memory_decay(integer),
    _memory_promote(),
    memory_consolidate(timestamp with time zone,jsonb,text,text)
from public;
grant execute on function
    _consolidate(bigint,timestamp with time zone,text,text,integer,integer),
    _consolidation_close(bigint,jsonb,text,boolean),
    _consolidation_finish(bigint),
    _consolidation_lock(),
    _consolidation_open(text,text,jsonb),
    _consolidation_pending(timestamp with time zone,text[]),
    _counts_add(jsonb,jsonb),
    _evidence_confidence(text,bigint),
    _evidence_lost(),
    _limit(jsonb,text,integer,integer),
    _link_strengthen(timestamp with time zone),
    _memory_decay(integer),
    _memory_promote(),
    memory_consolidate(timestamp with time zone,jsonb,text,text)
to mindful_user;
grant select, insert, update, delete on consolidation, memory_extraction, memory_statement, memory_entity to mindful_user;
