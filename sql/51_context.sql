insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('core_memory_tokens', 'integer', 0, 1000000, '{global,user,session}', '256',
        'How many tokens of core memories, those whose metadata say {"core": true}, are shown with every message.'),
    ('chat_memories', 'integer', 0, 50, '{global,user,session}', '3',
        'How many recalled memories are shown with a message at most, where a call does not say it.'),
    ('chat_temperature', 'number', 0, 10, '{global,user,session}', '0',
        'The temperature of chats'' answers, where a call does not say it; 0 always takes the likeliest token.');

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
    memories integer default null
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
'What the model would be shown for a message in a session, part by part in its order, with its tokens (those that the chat template adds included, at most) and the reason: the system prompt with the core memories and the summaries of turns that left the window, the recalled memories (they stand in the message), the newest turns that fit the context beside max_tokens of answer, the message. Memories NULL: as many as the setting chat_memories says. Without a query, the session''s last message if the user wrote it. Errors: 22004, 22023, 42704, 55000 (no message waits), 54000 (the message alone is too long).';
