\echo Use "ALTER EXTENSION mindful UPDATE TO '0.2.0'" to load this file. \quit

-- include sql/15_setting.sql

-- model
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

comment on column model.options is 'Options of the provider: context_length, threads (default 1), and of a generator also system_prompt, layout, a text with {memories} and {message} that says how recalled memories stand with a message, template, a Jinja chat template in place of the file''s, stop, texts that end every answer, and prompt_lookup (default 0, at most 32): how many tokens are guessed at once, at temperature 0, where an answer repeats what stands before; it changes no answer, and is faster where texts are copied (15 is a good choice).';

-- include sql/25_slot.sql

-- llm
alter table generation add column slot_wait_ms real not null default 0;
comment on column generation.slot_wait_ms is 'How long the call waited for a slot (see the setting model_slots), before and while it ran.';

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

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('model_keep', 'boolean', null, null, '{global,user}', 'true',
        'Whether a connection keeps the models that it has loaded when a transaction ends; where not, it gives their memory back then, and loads them again when it needs them.');

-- include sql/31_rerank.sql
-- include sql/32_structure.sql
-- include sql/34_label.sql
-- include sql/36_batch.sql
-- include sql/38_summary.sql

-- memory
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
create index memory_valid_from on memory (tenant, valid_from) where valid_from is not null;
create index memory_valid_to on memory (tenant, valid_to) where valid_to is not null;
create index memory_term_sample on memory_term (tenant, lexeme) where hashint8(id) & 31 = 0;
alter table memory drop constraint memory_role_check;
alter table memory add constraint memory_role_check check (role in ('system', 'user', 'assistant', 'tool', 'clarification'));
comment on column memory.role is 'Whose words a message holds; clarification: the assistant asked back.';
comment on column memory.source_key is 'Which part of the source this is: a chunk''s hash, a row''s primary key.';

drop trigger embed_inserted on memory;
drop trigger embed_updated on memory;

alter function _array_elements(text, jsonb, text[]) rows 10;

drop function memory_insert(text, text, jsonb, text, text);
drop function memory_insert_many(jsonb);

drop function memory_recall(text, integer, text[]);
drop function _memory_lexical(text, integer, text[]);
drop function _memory_nearest(text, integer, text[]);

-- include sql/41_arm.sql
-- include sql/42_recall.sql
-- include sql/43_embedding.sql
-- include sql/44_duplicate.sql
-- include sql/44_fact.sql
-- include sql/44_link.sql
-- include sql/45_access.sql

-- attachment
alter table attachment drop constraint attachment_mode_check;
alter table attachment add constraint attachment_mode_check check (mode in ('sync', 'async'));
comment on column attachment.mode is 'Whether rows are embedded within the statement that writes them (sync) or later, by a worker (async).';

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

-- include sql/46_job.sql
-- include sql/47_document.sql
-- include sql/48_forget.sql
-- include sql/48_forget_check.sql
-- include sql/48_prune.sql
-- include sql/49_transfer.sql

-- chat
alter type chat_detail add attribute probability real, add attribute reason text, add attribute decision_id bigint;

create or replace function llm_chat(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat
return llm_chat(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;

create or replace function llm_chat_detail(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns chat_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat_detail
return llm_chat_detail(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;

create or replace function llm_chat_stream(
    message text,
    session_id uuid default null,
    model text default null,
    max_tokens integer default 256,
    temperature real default null,
    seed integer default null,
    memories integer default null
) returns setof text
language plpython3u volatile parallel unsafe security invoker cost 100000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.chat import llm_chat_stream
return llm_chat_stream(message, session_id, model, max_tokens, temperature, seed, memories)
$python$;

comment on function llm_chat(text, uuid, text, integer, real, integer, integer) is
'Answers a message with the conversation so far and with recalled memories (at most `memories` of them) in view, and stores both turns. Memories and temperature NULL: as the settings chat_memories and chat_temperature say. session_id NULL starts a new conversation, which still remembers all others of the caller. message NULL answers the session''s last message, which a client has inserted and committed before. Errors: 22004 (both NULL), 22023, 42704 (no such session of yours, no such model), 54000 (message longer than the context), 57014 (cancelled).';

comment on function message_insert_many(uuid, jsonb) is
'Appends messages, an array of objects with role, content and, if wanted, metadata and created_at, to a session in their order, embedded in batches, and returns their ids. All or none: the error names the element. Roles: system, user, assistant, tool, clarification. Errors: 22004, 22023, 42704 (no such session of yours), 54000.';

create or replace function _message_role(role text, number bigint) returns text
language sql stable parallel safe security invoker
begin atomic
    select case
        when role = any (array['system', 'user', 'assistant', 'tool', 'clarification']) then role
        else mindful._raise('22023',
            pg_catalog.format('role of element %s is %s', number, coalesce(pg_catalog.quote_literal(role), 'null')),
            'Roles are system, user, assistant, tool and clarification.')::text
    end;
end;

comment on function llm_chat_detail(text, uuid, text, integer, real, integer, integer) is
'As llm_chat, with where the reply is stored (message_id), the memories it was shown, its cost, its confidence as in llm_generate_detail, and what was decided about it: probability is that of being right (see the table decision), the action answer where it reaches the threshold (retrieve, retry or escalate where another attempt does, see the settings of these names), else flag, clarify or abstain; the threshold is NULL until calibrate() has certified one; the reason says why.';

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
drop function session_context(uuid, text, text, integer, integer);

-- include sql/51_context.sql
-- include sql/52_recap.sql
-- include sql/53_assistant.sql
-- include sql/54_tool.sql
-- include sql/55_state.sql
-- review
comment on column review.score is 'p(true) / (p(true) + p(false)) of what follows the answer, against the same of an empty one; not calibrated.';
comment on column review.signals is 'log_odds of true against false, log_odds_content_free of the same for an empty answer, prompt_tokens of the review and cached_tokens among them, which were not evaluated again.';
drop function _review_subject(bigint);
create function _question_of(message_id bigint) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select coalesce((a.metadata ->> 'reply_to')::bigint, (
        select q.id from mindful.memory q
        where q.tenant = a.tenant and q.session_id = a.session_id and q.turn < a.turn and q.role = 'user'
        order by q.turn desc limit 1
    ))
    from mindful.memory a
    where a.tenant = (select mindful._tenant()) and a.id = _question_of.message_id;
end;
comment on function _question_of(bigint) is 'The user''s turn that an answer replies to: tools may have been called in between.';

create function _review_subject(message_id bigint)
returns table (session_id uuid, question text, answer text, memories text[])
language sql stable parallel safe security invoker
begin atomic
    select a.session_id, q.content, a.content,
        array(
            select m.content
            from pg_catalog.jsonb_array_elements_text(a.metadata -> 'memory_ids') with ordinality s (id, place)
            join mindful.memory m on m.tenant = a.tenant and m.id = s.id::bigint
            order by s.place
        )
    from mindful.memory a
    join mindful.memory q on q.tenant = a.tenant and q.id = mindful._question_of(a.id)
    where a.tenant = (select mindful._tenant()) and a.id = _review_subject.message_id and a.role = 'assistant';
end;
comment on function _review_subject(bigint) is
'An answer, its session, the message it answers, and the memories that it was shown, in their order.';

create function _review_turns(message_id bigint) returns table (role text, content text)
language sql stable parallel safe security invoker
begin atomic
    select m.role, m.content
    from mindful.memory a
    join mindful.memory m on m.tenant = a.tenant and m.session_id = a.session_id
        and m.turn < (
            select q.turn from mindful.memory q where q.tenant = a.tenant and q.id = mindful._question_of(a.id)
        )
        and case when pg_catalog.jsonb_typeof(a.metadata -> 'shown_from') = 'number'
            then m.turn >= (a.metadata ->> 'shown_from')::numeric end
    where a.tenant = (select mindful._tenant()) and a.id = _review_turns.message_id and m.role in ('user', 'assistant')
    order by m.turn;
end;
comment on function _review_turns(bigint) is 'The turns that stood before a message when it was answered, oldest first.';
comment on function self_review(bigint, text) is
'Has a generator (NULL: the default one) look again at an answer of the assistant, and stores the result. The conversation goes on with the question whether the answer is true, so what was computed of it is used again, and the score is read from the logits, nothing is generated: p(true) / (p(true) + p(false)), each label in all its writings (Kadavath et al. 2022, arXiv 2207.05221), its log-odds less those that the model gives an empty answer (contextual calibration, Zhao et al. 2021); the verdict is supported from 0.5 up. A small model''s word about itself says little: treat the score as one signal. Errors: 22004, 42704 (no such answer of yours), 54000 (longer than the model''s context).';

-- include sql/61_calibrator.sql
-- include sql/62_decision.sql
-- include sql/63_outcome.sql
-- include sql/64_calibration.sql
-- include sql/65_adapt.sql
-- include sql/66_lesson.sql
-- include sql/67_action.sql
-- include sql/68_clarification.sql

-- view
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

create or replace view confidence_daily with (security_barrier = true) as
with label as (
    select distinct on (d.tenant, d.generation_id) d.tenant, d.generation_id, o.correct
    from mindful.outcome o
    join mindful.decision d on d.tenant = o.tenant and d.id = o.decision_id
    where (o.tenant = (select mindful._tenant()) or (select mindful._reads_all())) and d.generation_id is not null
    order by d.tenant, d.generation_id, o.id desc
),
answer as (
    select g.created_at::date as day, g.tenant, g.model, g.confidence, g.completion_tokens, g.total_ms, l.correct,
        least(width_bucket(g.confidence, 0, 1, 10), 10) as bin
    from mindful.generation g
    left join label l on l.tenant = g.tenant and l.generation_id = g.id
    where g.tenant = (select mindful._tenant()) or (select mindful._reads_all())
),
daily as (
    select day, tenant, model, count(*) as generations, avg(confidence) as mean_confidence,
        percentile_cont(0.1) within group (order by confidence) as confidence_p10,
        percentile_cont(0.9) within group (order by confidence) as confidence_p90,
        avg(completion_tokens) as mean_tokens, avg(total_ms) as mean_ms,
        count(correct) as labels, count(*) filter (where not correct) as wrong
    from answer
    group by day, tenant, model
),
histogram as (
    select d.day, d.tenant, d.model, array_agg(b.now order by b.bin) as now, array_agg(b.before order by b.bin) as before
    from daily d
    join (
        select g.day, g.tenant, g.model, g.bin, g.now,
            coalesce(sum(g.now) over (
                partition by g.tenant, g.model, g.bin order by g.day
                range between interval '28 days' preceding and interval '1 day' preceding
            ), 0)::bigint as before
        from (
            select d.day, d.tenant, d.model, n.bin, coalesce(c.answers, 0) as now
            from daily d
            cross join generate_series(1, 10) n (bin)
            left join (
                select a.day, a.tenant, a.model, a.bin, count(*) as answers from answer a group by a.day, a.tenant, a.model, a.bin
            ) c on c.day = d.day and c.tenant = d.tenant and c.model = d.model and c.bin = n.bin
        ) g
    ) b on b.day = d.day and b.tenant = d.tenant and b.model = d.model
    group by d.day, d.tenant, d.model
)
select d.day, d.tenant, d.model, d.generations, d.mean_confidence, d.confidence_p10, d.confidence_p90,
    d.mean_tokens, d.mean_ms, d.labels, d.wrong, f.drift, f.drift_limit
from daily d
join histogram h on h.day = d.day and h.tenant = d.tenant and h.model = d.model,
    lateral mindful._drift(h.before, h.now) f;
comment on view confidence_daily is 'How sure the generators were, what their answers cost (tokens, milliseconds) and how many were labelled and wrong, by day, tenant and model: for oneself, or for mindful_reader for all. Drift compares the day''s confidence with that of the 28 days before; above drift_limit it is more than chance (see _drift).';

-- include sql/71_confidence.sql
-- include sql/72_consolidation.sql
-- include sql/74_sample.sql
-- include sql/76_export.sql
-- include sql/78_training.sql
-- include sql/79_schedule.sql
-- include sql/90_privilege.sql
