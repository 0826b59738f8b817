create table review (
    tenant text not null default _tenant(),
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
create index on review (tenant, message_id);
comment on table review is 'Second looks of a model at answers, read from its logits.';
comment on column review.score is 'p(yes) / (p(yes) + p(no)) for "is this answer correct?", not calibrated.';
alter table review enable row level security;
alter table review force row level security;
create policy own on review using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant()));
select pg_catalog.pg_extension_config_dump('mindful.review', '');
select pg_catalog.pg_extension_config_dump('mindful.review_id_seq', '');

create type review_detail as (score real, verdict text, signals jsonb);
comment on type review_detail is 'A model''s second look at an answer.';

create function _review_subject(message_id bigint)
returns table (question text, answer text, memories text[])
language sql stable parallel safe security invoker
begin atomic
    select q.content, a.content,
        array(
            select m.content
            from mindful.memory m
            where m.tenant = a.tenant
                and m.id = any (array(select pg_catalog.jsonb_array_elements_text(a.metadata -> 'memory_ids')::bigint))
            order by m.id
        )
    from mindful.memory a
    join mindful.memory q on q.tenant = a.tenant and q.session_id = a.session_id
        and case when a.metadata ? 'reply_to' then q.id = (a.metadata ->> 'reply_to')::bigint else q.turn = a.turn - 1 end
    where a.tenant = (select mindful._tenant()) and a.id = _review_subject.message_id and a.role = 'assistant';
end;
comment on function _review_subject(bigint) is 'An answer, the message it answers, and the memories it was shown.';

create function self_review(message_id bigint, model text default null) returns review_detail
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.review import self_review
return self_review(message_id, model)
$python$;
comment on function self_review(bigint, text) is
'Has a generator (NULL: the default one) look again at an answer of the assistant, and stores the result. The score is p(yes) / (p(yes) + p(no)) for the question whether the answer is correct, read from the logits and divided by what the same model says of an empty answer (contextual calibration, Zhao et al. 2021); the verdict is supported from 0.5 up. A small model''s word about itself says little: treat the score as one signal. Errors: 22004, 42704 (no such answer of yours).';

