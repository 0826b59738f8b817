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

create function memory_insert_many(memories jsonb) returns setof bigint
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
comment on function memory_insert_many(jsonb) is
'Remembers an array of objects with the fields of memory_insert, embedded in batches, and returns their ids in order. All or none: the error names the element. Errors as memory_insert.';

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
