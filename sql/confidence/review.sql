create table review (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    message_id bigint not null,
    reviewer text not null,
    prompt_version integer not null,
    score real not null check (score between 0 and 1),
    verdict text not null check (verdict in ('supported', 'doubtful')),
    signals jsonb not null,
    total_ms real not null,
    created_at timestamptz not null default now(),
    primary key (tenant, id),
    foreign key (tenant, message_id) references memory on delete cascade
);
create index on review (tenant, message_id) where message_id is not null;
comment on table review is 'Reviews of answers by a model, read from its logits.';
comment on column review.score is
'p(true) / (p(true) + p(false)) of the token after the answer, relative to that of an empty answer. It is not calibrated.';
comment on column review.signals is
'log_odds of true against false, log_odds_content_free (the same for an empty answer), prompt_tokens of the review, and cached_tokens, those among them that were not evaluated again.';
alter table review enable row level security, force row level security;
create policy own on review using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.review', '');
select pg_catalog.pg_extension_config_dump('mindful.review_id_seq', '');

create type review_detail as (score real, verdict text, signals jsonb);
comment on type review_detail is 'Result of self_review.';

create function _mindful.question_of(message_id bigint) returns bigint
language sql stable parallel safe security invoker
begin atomic
    select coalesce(
        (
            select q.id from mindful.memory q
            where q.tenant = a.tenant and q.id = _mindful.memory_id(a.metadata ->> 'reply_to')
                and q.session_id = a.session_id and q.turn < a.turn and q.role = 'user'
        ),
        (
            select q.id from mindful.memory q
            where q.tenant = a.tenant and q.session_id = a.session_id and q.turn < a.turn and q.role = 'user'
            order by q.turn desc limit 1
        )
    )
    from mindful.memory a
    where a.tenant = (select _mindful.tenant()) and a.id = question_of.message_id;
end;
comment on function _mindful.question_of(bigint) is
'Returns the id of the user''s turn that an answer replies to: the one that reply_to of its metadata names, else the last one before it. Tool calls may lie in between.';

create function _mindful.review_subject(message_id bigint)
returns table (session_id uuid, question text, answer text, memories text[])
language sql stable parallel safe security invoker
begin atomic
    select a.session_id, q.content, a.content,
        array(
            select m.content
            from _mindful.memory_ids(a.metadata) s
            join mindful.memory m on m.tenant = a.tenant and m.id = _mindful.memory_id(s.id)
            order by s.number
        )
    from mindful.memory a
    join mindful.memory q on q.tenant = a.tenant and q.id = _mindful.question_of(a.id)
    where a.tenant = (select _mindful.tenant()) and a.id = review_subject.message_id and a.role = 'assistant';
end;
comment on function _mindful.review_subject(bigint) is
'Returns an answer with its session, its question, and the memories in its prompt, in order.';

create function _mindful.review_turns(message_id bigint) returns table (role text, content text)
language sql stable parallel safe security invoker
begin atomic
    select m.role, m.content
    from mindful.memory a
    join mindful.memory m on m.tenant = a.tenant and m.session_id = a.session_id
        and m.turn < (
            select q.turn from mindful.memory q where q.tenant = a.tenant and q.id = _mindful.question_of(a.id)
        )
        and case when pg_catalog.jsonb_typeof(a.metadata -> 'shown_from') = 'number'
            then m.turn >= (a.metadata ->> 'shown_from')::numeric end
    where a.tenant = (select _mindful.tenant()) and a.id = review_turns.message_id and m.role in ('user', 'assistant')
    order by m.turn;
end;
comment on function _mindful.review_turns(bigint) is
'Returns the turns that the prompt of an answer contained, oldest first.';

create function self_review(message_id bigint, model text default null) returns review_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.review import self_review
return self_review(message_id, model)
$python$;
comment on function self_review(bigint, text) is
'Has a generator (NULL: the default one) review an answer of the assistant, stores the review and returns it. verdict is supported from score 0.5, else doubtful. Errors: 22004, 42704 (no such answer of the tenant), 54000 (longer than the model''s context). Example: select score, verdict from self_review(42);';
