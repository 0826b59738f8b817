insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('chat_clarify', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether an answer below its threshold is replaced by a question if the message has several possible answers: several full names for a name in it, a pronoun with nothing to refer to, or at least two answers that were each sampled more than once.');

create function _mindful.clarification(message_id bigint)
returns table (decision_id bigint, question text, answer text, clarification jsonb)
language sql stable parallel safe security invoker rows 1
begin atomic
    select d.id, q.content, d.answer, c.metadata -> 'clarification'
    from mindful.memory c
    join mindful.decision d on d.tenant = c.tenant and d.message_id = c.id and d.action = 'clarify',
        lateral (
            select u.content from mindful.memory u
            where u.tenant = c.tenant and u.session_id = c.session_id and u.turn < c.turn and u.role = 'user'
            order by u.turn desc
            limit 1
        ) q
    where c.tenant = (select _mindful.tenant()) and c.id = clarification.message_id and c.role = 'clarification'
        and c.metadata @@ 'strict exists($.clarification ? ((@.of == "name" || @.of == "answer" || @.of == "reference")
            && exists(@.choices[0]) && !exists(@.choices[*] ? (@.type() != "string" || @ == ""))))'
    order by d.id desc
    limit 1;
end;
comment on function _mindful.clarification(bigint) is
'Returns the message, the withheld answer and the choices of a clarification; no row if its metadata are not as a chat stores them.';
