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

comment on column model.options is 'Options of the provider: context_length, threads (default 1), and of a generator also system_prompt and layout, a text with {memories} and {message} that says how recalled memories stand with a message, template, a Jinja chat template in place of the file''s, and stop, texts that end every answer.';
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
