create table outcome (
    tenant text not null default _mindful.tenant(),
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
comment on table outcome is
'Labels: whether answers are right, and who labeled them. Labels are added, never changed; the latest counts.';
comment on column outcome.grader_version is 'Version of the rule that graded, of answer_grade for gold.';
alter table outcome enable row level security, force row level security;
create policy own on outcome using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()) and graded_by = current_user);
select pg_catalog.pg_extension_config_dump('mindful.outcome', '');
select pg_catalog.pg_extension_config_dump('mindful.outcome_id_seq', '');

create view latest_outcome with (security_invoker = true) as
select distinct on (o.tenant, o.decision_id, o.message_id)
    o.tenant, o.decision_id, o.message_id, o.correct, o.grader, o.grader_version, o.note, o.graded_by, o.created_at, o.id as outcome_id
from mindful.outcome o
order by o.tenant, o.decision_id, o.message_id, o.id desc;
comment on view latest_outcome is 'The latest label of each answer.';

create function answer_label(message_id bigint, correct boolean, note text default null) returns bigint
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    label bigint;
    decided bigint;
begin
    perform _mindful.writable();
    if message_id is null or correct is null then
        perform _mindful.raise('22004', 'message_id or correct is null',
            'Pass the message_id that llm_chat_detail returned, and true or false.');
    elsif octet_length(note) > 8192 then
        perform _mindful.raise('54000', format('note has %s bytes, more than 8192', octet_length(note)), 'Pass a note of at most 8192 bytes.');
    end if;
    perform from mindful.memory m
    where m.tenant = (select _mindful.tenant()) and m.id = answer_label.message_id and m.kind = 'message' and m.role = 'assistant'
    for key share;
    if not found then
        perform _mindful.raise('42704', format('there is no answer %s', message_id),
            'List the tenant''s answers in mindful.conversation, role assistant.');
    end if;
    select max(d.id) into decided from mindful.decision d
    where d.tenant = (select _mindful.tenant()) and d.message_id = answer_label.message_id;
    insert into mindful.outcome (message_id, decision_id, correct, grader, note)
    values (answer_label.message_id, decided, answer_label.correct, 'user', answer_label.note)
    returning id into label;
    perform _mindful.threshold_watch(d.threshold_id) from mindful.decision d
    where d.tenant = (select _mindful.tenant()) and d.id = decided and d.threshold_id is not null;
    return label;
end
$$;
comment on function answer_label(bigint, boolean, text) is
'Labels an answer of the assistant as right or wrong, and returns the label''s id. message_id is the one that llm_chat_detail returns. calibrate learns from labels. Errors: 22004, 42704 (no such answer of the tenant), 54000 (note over 8192 bytes). Example: select answer_label(42, false, ''It was 1912.'');';

-- An answer without a label counts as right, so the evidence holds whichever answers users choose to label.
create function _mindful.threshold_evidence(threshold_id bigint) returns double precision
language sql stable parallel safe security invoker
begin atomic
    select coalesce(pg_catalog.max(s.log_evidence), 0)
    from (
        select pg_catalog.sum(pg_catalog.ln(1 + 0.15 * (o.wrong - t.budget) / t.budget)) over (order by o.id) as log_evidence
        from mindful.threshold t
        join lateral (
            select d.id, coalesce(given.unflagged and not l.correct, false)::integer::double precision as wrong
            from mindful.decision d
            cross join lateral (
                select d.action = any (array['answer', 'retrieve', 'retry', 'escalate']) and d.replaced_by_id is null as unflagged
            ) given
            left join lateral (
                select n.correct from mindful.outcome n
                where n.tenant = d.tenant and n.decision_id = d.id order by n.id desc limit 1
            ) l on true
            where d.tenant = (select _mindful.tenant()) and d.threshold_id = t.id
                and case t.budget_kind when 'answers' then given.unflagged else true end
        ) o on true
        where t.tenant = (select _mindful.tenant()) and t.id = threshold_evidence.threshold_id
    ) s;
end;
comment on function _mindful.threshold_evidence(bigint) is
'Returns the logarithm of the evidence that a threshold breaks its budget: the maximum over time of the product of 1 + lambda (error - budget) over the answers given, lambda = 0.15 / budget. An answer without a label counts as right. If the budget is kept, it exceeds -ln(delta) with probability at most delta (Ville''s inequality; Waudby-Smith and Ramdas 2024).';

create function _mindful.threshold_watch(threshold_id bigint) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
declare
    watched mindful.threshold;
begin
    select t.* into watched from mindful.threshold t
    where t.tenant = (select _mindful.tenant()) and t.id = threshold_watch.threshold_id
        and t.id = (
            select coalesce(n.repeats, n.id) from mindful.threshold n
            where n.tenant = t.tenant and n.calibrator_id = t.calibrator_id and n.budget = t.budget
                and n.after is not distinct from t.after and n.status <> 'infeasible'
            order by n.id desc limit 1
        )
        and t.value is not null;
    if not found or _mindful.threshold_evidence(watched.id) < -ln(watched.delta) then
        return false;
    end if;
    insert into mindful.threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, status, labels, reason, after, last_outcome, supersedes)
    values (watched.calibrator_id, watched.budget_kind, watched.budget, watched.delta, watched.run, 0, 'tightened', 0,
        format('labels show more errors than the budget of %s allows; every answer is flagged until calibrate() certifies a new threshold',
            watched.budget),
        watched.after,
        (select max(o.id) from mindful.outcome o where o.tenant = (select _mindful.tenant())),
        watched.id);
    return true;
end
$$;
comment on function _mindful.threshold_watch(bigint) is
'Replaces a threshold in force by one that flags every answer if the evidence against its budget exceeds 1 / delta. Returns whether it did.';

create function _mindful.answer_normal(content text) returns text
language sql immutable parallel safe security invoker
begin atomic
    select pg_catalog.btrim(pg_catalog.regexp_replace(pg_catalog.regexp_replace(pg_catalog.regexp_replace(
        pg_catalog.lower(pg_catalog.normalize(pg_catalog.left(content, 4096), 'NFKC')), '[^[:alnum:]]+', ' ', 'g'), '\y(a|an|the)\y', ' ', 'g'), ' +', ' ', 'g'));
end;
comment on function _mindful.answer_normal(text) is
'Returns the first 4096 characters of a text in lower case, without punctuation and articles (SQuAD; Rajpurkar et al. 2016). The limit is there because normalization takes quadratic time in a run of combining marks and cannot be cancelled. Version 1.';

create function _mindful.answer_grade(answer text, answers text[]) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select exists (
        select from pg_catalog.unnest(answers) g (answer)
        where _mindful.answer_normal(g.answer) <> ''
            and pg_catalog.strpos(' ' || _mindful.answer_normal(answer_grade.answer) || ' ', ' ' || _mindful.answer_normal(g.answer) || ' ') > 0
    );
end;
comment on function _mindful.answer_grade(text, text[]) is
'Returns whether an answer equals or contains one of the right answers, word by word, after answer_normal. Version 1. The rule is frozen: labels by different rules cannot be compared.';

create function _mindful.is_answered(action text, signals jsonb) returns boolean
language sql immutable parallel safe security invoker
begin atomic
    select not (action = 'abstain' and signals = '{}');
end;
comment on function _mindful.is_answered(text, jsonb) is
'Whether the model was asked for a reply. If not, the reply has no signals, and its label is not evidence about the model.';

create function _mindful.labeled(model text, ways text[], second_model text, with_memory boolean, signal_tier integer)
returns table (
    decision_id bigint,
    signals jsonb,
    signal_tier integer,
    correct boolean,
    propensity double precision,
    source text,
    question text,
    attempts jsonb,
    outcome_id bigint
)
language sql stable parallel safe security invoker rows 1000
begin atomic
    select d.id, d.signals, d.signal_tier, l.correct, d.propensity,
        coalesce('gold ' || nullif(g.source, ''), g.question, 'session ' || m.session_id, 'decision ' || d.id),
        g.question, a.attempts, l.outcome_id
    from mindful.decision d
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    left join (
        select f.id, f.source, 'gold question ' || pg_catalog.min(f.id) over (partition by f.question) as question
        from mindful.gold f
        where f.tenant = (select _mindful.tenant())
    ) g on g.id = d.gold_id
    left join mindful.memory m on m.tenant = d.tenant and m.id = coalesce(d.message_id, d.replaced_by_id)
    cross join lateral (
        with recursive attempt as (
            select p.id, p.parent_id, p.ways, p.second_model, p.with_memory, p.signal_tier, p.signals,
                d.ways[pg_catalog.cardinality(d.ways)] as next_way, 1 as place
            from mindful.decision p
            where p.tenant = d.tenant and p.id = d.parent_id and d.ways <> '{}'
            union all
            select p.id, p.parent_id, p.ways, p.second_model, p.with_memory, p.signal_tier, p.signals,
                b.ways[pg_catalog.cardinality(b.ways)], b.place + 1
            from attempt b
            join mindful.decision p on p.tenant = (select _mindful.tenant()) and p.id = b.parent_id
            where b.ways <> '{}'
        )
        select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('ways', b.ways, 'second_model', b.second_model,
            'with_memory', b.with_memory, 'signal_tier', b.signal_tier, 'signals', b.signals, 'next_way', b.next_way)
            order by b.place desc), '[]') as attempts
        from attempt b
    ) a
    where d.tenant = (select _mindful.tenant()) and d.model = labeled.model
        and d.ways = labeled.ways and d.second_model is not distinct from labeled.second_model
        and d.with_memory = labeled.with_memory and d.signal_tier >= labeled.signal_tier
        and _mindful.is_answered(d.action, d.signals)
    order by l.outcome_id;
end;
comment on function _mindful.labeled(text, text[], text, boolean, integer) is
'Returns a model''s labeled answers with signals up to a tier, oldest label first. source is the session, or the source of a gold question; question names a gold question, however often it was asked. attempts are the earlier attempts at the same reply, the first one first. Replies for which the model was not asked are left out.';

create function _mindful.lineage_list(model text) returns table (ways text[], second_model text)
language sql stable parallel safe security invoker rows 10
begin atomic
    select d.ways, d.second_model
    from mindful.decision d
    where d.tenant = (select _mindful.tenant()) and d.model = lineage_list.model
        and exists (select from mindful.outcome o where o.tenant = d.tenant and o.decision_id = d.id)
    group by d.ways, d.second_model
    order by pg_catalog.cardinality(d.ways), d.ways, d.second_model;
end;
comment on function _mindful.lineage_list(text) is 'Returns the ways by which a model''s labeled answers were made, first answers first; see decision.ways.';

create function _mindful.label_count(model text, ways text[], second_model text, with_memory boolean)
returns table (labels bigint, correct bigint)
language sql stable parallel safe security invoker rows 1
begin atomic
    select pg_catalog.count(*), coalesce(pg_catalog.round((pg_catalog.count(*)
        * pg_catalog.sum(l.correct::integer / d.propensity) / pg_catalog.sum(1 / d.propensity))::numeric), 0)::bigint
    from mindful.decision d
    join mindful.latest_outcome l on l.tenant = d.tenant and l.decision_id = d.id
    where d.tenant = (select _mindful.tenant()) and d.model = label_count.model
        and d.ways = label_count.ways and d.second_model is not distinct from label_count.second_model
        and d.with_memory = label_count.with_memory
        and _mindful.is_answered(d.action, d.signals);
end;
comment on function _mindful.label_count(text, text[], text, boolean) is 'Returns the number of labeled answers of a model made in given ways, and the number of right ones among them, weighted by 1 / propensity.';
