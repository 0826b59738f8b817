insert into setting_definition (key, type, scopes, initial, description) values
    ('chat_lessons', 'boolean', '{global,user,session}', 'true',
        'Whether a chat uses labels of answers to similar questions (answer_label). The note of a wrong answer is shown to the model, and the same answer is flagged.');

create index memory_question on memory (tenant, content_hash) where kind = 'message' and role = 'user';

create function _mindful.lesson(memory_ids bigint[], session_id uuid)
returns table (memory_id bigint, question text, message_id bigint, answer text, correct boolean, note text)
language plpgsql stable parallel safe security invoker rows 2
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    shown mindful.recall_filter := _mindful.chat_filter(lesson.session_id, false);
begin
    -- OFFSET 0 looks the answer of each question up by its turn, and the label by its answer.
    return query
    select r.id, r.content, l.message_id, l.answer, l.correct, l.note
    from unnest(memory_ids) asked (id)
    cross join lateral (
        select m.id, m.content, m.content_hash from mindful.memory m
        where m.tenant = (select _mindful.tenant()) and m.id = asked.id and m.kind = 'message' and m.role = 'user'
        offset 0
    ) r
    cross join lateral (
        select a.id as message_id, coalesce(d.answer, a.content) as answer, o.correct, o.note
        from mindful.memory q
        cross join lateral (
            select n.turn from mindful.memory n
            where n.tenant = q.tenant and n.session_id = q.session_id and n.turn > q.turn and n.role <> 'tool'
            order by n.turn limit 1
        ) next
        -- Turns that were inserted while the reply was generated stand between: 50 are more than enough.
        cross join lateral (
            select n.id, n.content from mindful.memory n
            where n.tenant = q.tenant and n.session_id = q.session_id and n.turn > q.turn and n.turn <= q.turn + 50
                and n.role = 'assistant'
                and case when n.metadata ? 'reply_to' then n.metadata ->> 'reply_to' = q.id::text else n.turn = next.turn end
            offset 0
        ) a
        join mindful.outcome o on o.tenant = q.tenant and o.message_id = a.id
        left join mindful.decision d on d.tenant = o.tenant and d.id = o.decision_id
        where q.tenant = (select _mindful.tenant()) and q.content_hash = r.content_hash
            and q.kind = 'message' and q.role = 'user' and _mindful.recall_admits(shown, q)
        order by o.id desc limit 1
    ) l;
end
$$;
comment on function _mindful.lesson(bigint[], uuid) is
'Of recalled messages those whose text was asked and answered before, and the answer has a label: the question, the answer (what was withheld, if it was), and what the latest label says of it. It was asked within the setting recall_scope of the session.';
