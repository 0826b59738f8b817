insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('core_memory_tokens', 'integer', 0, 1000000, '{global,user,session}', '256',
        'Largest number of tokens of core memories in a prompt. Core memories have {"core": true} in their metadata. Every message gets those that recall_scope admits.'),
    ('chat_memories', 'integer', 0, 50, '{global,user,session}', '3',
        'Largest number of recalled memories in the prompt of a message, if the call does not pass one.'),
    ('chat_system_prompt', 'text', null, 10000, '{global,user,session}', 'null',
        'System prompt of chats whose session has none.'),
    ('chat_window', 'integer', 2, 1000, '{global,user,session}', '30',
        'Largest number of a session''s newest turns in a prompt. If there are more, or they do not fit, the prompt has half as many.'),
    ('chat_temperature', 'number', 0, 10, '{global,user,session}', '0',
        'Sampling temperature of chats, if the call does not pass one. 0: the most likely token.'),
    ('chat_top_p', 'number', 0, 1, '{global,user,session}', '0.95',
        'Probability mass of the most likely tokens that chats sample from at a temperature above 0. 1: all tokens.'),
    ('chat_top_k', 'integer', 0, 1073741824, '{global,user,session}', '40',
        'Number of the most likely tokens that chats sample from at a temperature above 0. 0: all tokens.'),
    ('chat_min_p', 'number', 0, 1, '{global,user,session}', '0.05',
        'Lowest probability of a token that chats sample, as a share of the most likely token''s. 0: all tokens.'),
    ('chat_presence_penalty', 'number', -2, 2, '{global,user,session}', '0',
        'Deduction from the logit of a token that the answer of a chat has already. 0: none.'),
    ('chat_frequency_penalty', 'number', -2, 2, '{global,user,session}', '0',
        'Deduction from the logit of a token for each time that the answer of a chat has it already. 0: none.'),
    ('chat_repeat_penalty', 'number', 0.1, 10, '{global,user,session}', '1',
        'Divisor of the logit of a token that the answer of a chat has already. 1: none.');

create index memory_core on memory (tenant, id) where metadata -> 'core' = 'true';

create function _mindful.core_memory(session_id uuid) returns table (id bigint, content text)
language sql stable parallel safe security invoker rows 5
begin atomic
    select m.id, m.content
    from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.metadata -> 'core' = 'true'
        and _mindful.recall_admits((select _mindful.chat_filter(core_memory.session_id, false)), m)
    order by m.importance desc, m.id
    limit 50;
end;
comment on function _mindful.core_memory(uuid) is
'Returns what every message of a session is shown: memories that have {"core": true} in their metadata, are valid now and lie within the setting recall_scope of the session, the most important first.';

create function _mindful.session_read(session_id uuid, turns integer, model text, message text default null) returns json
language plpgsql stable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_sort = off
as $$
declare
    own_tenant text := _mindful.tenant();
    settings jsonb := _mindful.settings(session_id);
begin
    if message is not null then
        perform _mindful.text_argument('message', message);
    end if;
    return json_build_object(
        'settings', settings,
        'prompts', (
            select json_object_agg(d.key, json_build_object('text', d.prompt, 'type', d.type, 'low', d.low, 'high', d.high,
                'choices', d.choices) order by d.key)
            from mindful.setting_definition d
            where d.prompt is not null and d.tenant = any (array['', own_tenant])
        ),
        'session', (
            select json_build_object('system_prompt', s.system_prompt) from mindful.session s
            where s.tenant = own_tenant and s.session_id = session_read.session_id
        ),
        'turns', (select json_agg(t) from _mindful.session_turns(session_id, case when turns > 0 then (settings ->> 'chat_window')::integer + turns else 0 end) t),
        'shown_from', (
            select case
                when jsonb_typeof(m.metadata -> 'shown_from') = 'number'
                    and (m.metadata -> 'shown_from')::numeric between 1 and 2147483647
                    then (m.metadata -> 'shown_from')::integer
            end
            from mindful.memory m
            where m.tenant = own_tenant and m.session_id = session_read.session_id
                and m.turn > 0 and m.role = 'assistant' and m.metadata ->> 'model' = session_read.model
            order by m.turn desc
            limit 1
        ),
        'core', (select json_agg(c) from _mindful.core_memory(session_id) c),
        'labeled', exists (select from mindful.outcome o where o.tenant = own_tenant)
    );
end
$$;
comment on function _mindful.session_read(uuid, integer, text, text) is
'Returns what a chat reads before it recalls: the settings in force, the sentences that settings add to the system prompt, the session, its last turns (newest first), the first turn that the model was shown for its last reply there, the core memories, and whether answers have labels. Errors as text_argument for the message.';

create function _mindful.memory_shown(ids bigint[]) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
    own_tenant text := _mindful.tenant();
    counted integer;
begin
    if coalesce(cardinality(ids), 0) = 0 then
        return;
    end if;
    with free as (
        select a.id from mindful.memory_access a
        where a.tenant = own_tenant and a.id = any (ids)
        for update skip locked
    )
    update mindful.memory_access a
    set access_count = a.access_count + 1, last_accessed_at = now()
    from free f
    where a.tenant = own_tenant and a.id = f.id;
    get diagnostics counted = row_count;
    if counted = cardinality(ids) then
        return;
    end if;
    insert into mindful.memory_access (id)
    select n.id
    from (
        select m.id from mindful.memory m
        where m.tenant = own_tenant and m.id = any (ids)
            and not exists (select from mindful.memory_access a where a.tenant = own_tenant and a.id = m.id)
        order by m.id
        for key share of m skip locked
    ) n
    on conflict do nothing;
end
$$;
comment on function _mindful.memory_shown(bigint[]) is 'Counts that memories were shown. A row that another transaction is counting in is left to it, and a memory that one is deleting is not counted.';

create function session_context(
    session_id uuid,
    query text default null,
    model text default null,
    max_tokens integer default 256,
    memories integer default null
) returns table (
    part text, role text, content text, tokens integer, memory_id bigint, score double precision, reason text
)
language plpython3u volatile parallel unsafe security invoker cost 10000 rows 10
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.conversation.context import session_context
return session_context(session_id, query, model, max_tokens, memories)
$python$;
comment on function session_context(uuid, text, text, integer, integer) is
'Returns what the model would read for a message in a session, part by part in its order, with its tokens and the reason. Without a query, the message is the session''s last one if the user wrote it. Errors: 22004, 22023, 42704, 54000 (the message alone is too long), 55000 (no message waits). Example: select part, tokens, reason from session_context(session_start(), ''Hello'');';
