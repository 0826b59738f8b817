insert into setting_definition (key, type, scopes, initial, description) values
    ('chat_lessons', 'boolean', '{global,user,session}', 'true',
        'Whether a chat keeps in mind what labels say of answers to like questions: see review_label.');

create index memory_question on memory (tenant, content_hash) where kind = 'message' and role = 'user';

create function _lesson(memory_ids bigint[])
returns table (memory_id bigint, question text, message_id bigint, answer text, correct boolean, note text)
language sql stable parallel safe security invoker rows 2
begin atomic
    select r.id, r.content, l.message_id, l.answer, l.correct, l.note
    from unnest(memory_ids) asked (id)
    join mindful.memory r on r.tenant = (select mindful._tenant()) and r.id = asked.id
        and r.kind = 'message' and r.role = 'user'
    join lateral (
        select a.id as message_id, coalesce(d.answer, a.content) as answer, o.correct, o.note
        from mindful.memory q
        join mindful.memory a on a.tenant = q.tenant and a.session_id = q.session_id and a.role = 'assistant'
            and case when a.metadata ? 'reply_to' then (a.metadata ->> 'reply_to')::bigint = q.id
                else a.turn = (
                    select min(n.turn) from mindful.memory n
                    where n.tenant = q.tenant and n.session_id = q.session_id and n.turn > q.turn and n.role <> 'tool'
                )
            end
        join mindful.outcome o on o.tenant = a.tenant and o.message_id = a.id
        left join mindful.decision d on d.tenant = o.tenant and d.id = o.decision_id
        where q.tenant = (select mindful._tenant()) and q.content_hash = r.content_hash
            and q.kind = 'message' and q.role = 'user'
        order by o.id desc limit 1
    ) l on true;
end;
comment on function _lesson(bigint[]) is
'Of recalled messages those whose text was asked and answered before, and the answer has a label: the question, the answer (what was withheld, if it was), and what the latest label says of it.';
