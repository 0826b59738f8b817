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
create index on outcome (tenant, decision_id, id) where decision_id is not null;
create index on outcome (tenant, message_id, id) where message_id is not null;
comment on table outcome is 'Whether answers were right, and who says so. A label is never overwritten: a later one is added and counts.';
comment on column outcome.grader_version is 'Version of the rule that graded: of _answer_grade for gold.';
alter table outcome enable row level security, force row level security;
create policy own on outcome using (tenant = (select mindful._tenant()))
    with check (tenant = (select mindful._tenant_claimed()) and graded_by = current_user);
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
    perform mindful._writable();
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
        select pg_catalog.sum(pg_catalog.ln(1 + 0.15 * (o.wrong - t.budget) / t.budget)) over (order by o.outcome_id) as log_evidence
        from mindful.threshold t
        join lateral (
            select l.outcome_id, (given.unflagged and not l.correct)::integer::double precision as wrong
            from mindful.decision d
            cross join lateral (
                select d.action = any (array['answer', 'retrieve', 'retry', 'escalate']) and d.instead_id is null as unflagged
            ) given
            join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
            where d.tenant = (select mindful._tenant()) and d.threshold_id = t.id
                and case t.budget_kind when 'answers' then given.unflagged else true end
        ) o on true
        where t.tenant = (select mindful._tenant()) and t.id = _threshold_evidence.threshold_id
    ) s;
end;
comment on function _threshold_evidence(bigint) is
'Logarithm of the evidence against a threshold''s promise: of the largest value that the product of 1 + lambda (error - budget), lambda = 0.15 / budget, which notices a doubled error soonest, has had over the labelled answers given under it. While the promise holds it ever exceeds 1 / delta with probability delta at most (Ville''s inequality; Waudby-Smith and Ramdas 2024).';

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
            select max(n.id) from mindful.threshold n
            where n.tenant = t.tenant and n.calibrator_id = t.calibrator_id and n.budget = t.budget
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
        pg_catalog.lower(pg_catalog.normalize(pg_catalog.left(content, 4096), 'NFKC')), '[^[:alnum:]]+', ' ', 'g'), '\y(a|an|the)\y', ' ', 'g'), ' +', ' ', 'g'));
end;
comment on function _answer_normal(text) is
'A text as answers are compared: its first 4096 characters in lower case, without punctuation and articles (SQuAD; Rajpurkar et al. 2016). Normalizing takes the square of a run of combining marks, and cannot be cancelled. Version 1.';

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
        select coalesce('gold ' || nullif(g.source, ''), 'gold question ' || d.gold_id, 'session ' || m.session_id, 'decision ' || d.id)
            as source
    ) s
    where d.tenant = (select mindful._tenant()) and d.model = _labelled.model
        and d.with_memory = _labelled.with_memory and d.tier >= _labelled.tier
    order by l.outcome_id;
end;
comment on function _labelled(text, boolean, integer) is
'A model''s labelled answers whose signals a calibrator of the tier can read, oldest label first. Source names what must not be split between fitting and testing, and fitting, by its hash, on which side it is: for ever, so that no calibrator is tested on what it or an earlier one was fitted to.';

create function _labelled_ways(model text) returns table (model text)
language sql stable parallel safe security invoker rows 10
begin atomic
    select d.model
    from mindful.decision d
    where d.tenant = (select mindful._tenant())
        and (d.model = _labelled_ways.model or pg_catalog.starts_with(d.model, _labelled_ways.model || ' > ')
            or pg_catalog.starts_with(d.model, _labelled_ways.model || ' + '))
        and exists (select from mindful.outcome o where o.tenant = d.tenant and o.decision_id = d.id)
    group by d.model
    order by pg_catalog.length(d.model), d.model;
end;
comment on function _labelled_ways(text) is 'A model and the other ways from it to an answer, as far as they have labels; see decision.model.';

create function _label_count(model text, with_memory boolean) returns table (labels bigint, correct bigint)
language sql stable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.count(*), pg_catalog.count(*) filter (where l.correct)
    from mindful._labelled(model, with_memory, 0) l;
end;
comment on function _label_count(text, boolean) is 'How many labelled answers of a model there are, and how many of them are right.';
