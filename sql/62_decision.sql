create table gold (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    question text not null,
    answers text[] not null,
    memories text[] not null default '{}',
    source text not null default '',
    created_at timestamptz not null default now(),
    primary key (tenant, id)
);
comment on table gold is 'Questions whose answers are known, to measure a model by. They are no memories: nothing recalls them.';
comment on column gold.answers is 'Any of these is right; none: the question has no answer, and every answer to it is wrong.';
comment on column gold.memories is 'Texts that the prompt showed as memories.';
comment on column gold.source is 'What belongs together, such as one conversation: never split between fitting and testing.';

create table decision (
    tenant text not null default _tenant(),
    id bigint generated always as identity,
    parent_id bigint,
    message_id bigint,
    instead_id bigint,
    gold_id bigint,
    generation_id bigint,
    answer text,
    model text not null,
    with_memory boolean not null,
    tier integer not null check (tier between 0 and 3),
    signals jsonb not null check (jsonb_typeof(signals) = 'object'),
    signal_ms jsonb not null default '{}',
    probability double precision not null check (probability between 0 and 1),
    calibrator_id bigint,
    threshold_id bigint,
    threshold double precision,
    action text not null check (action in ('answer', 'retrieve', 'retry', 'escalate', 'clarify', 'flag', 'abstain')),
    reason text not null,
    alternatives jsonb not null default '[]',
    offered boolean not null default false,
    propensity double precision not null default 1 check (propensity > 0 and propensity <= 1),
    total_ms double precision not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    primary key (tenant, id),
    foreign key (tenant, parent_id) references decision on delete set null (parent_id),
    foreign key (tenant, message_id) references memory on delete cascade,
    foreign key (tenant, instead_id) references memory on delete cascade,
    foreign key (tenant, gold_id) references gold on delete cascade,
    foreign key (tenant, generation_id) references generation on delete set null (generation_id),
    foreign key (tenant, calibrator_id) references calibrator,
    foreign key (tenant, threshold_id) references threshold
);
create index on decision (tenant, message_id) where message_id is not null;
create index on decision (tenant, instead_id) where instead_id is not null;
create index on decision (tenant, parent_id) where parent_id is not null;
create index on decision (tenant, gold_id) where gold_id is not null;
create index on decision (tenant, generation_id) where generation_id is not null;
create index on decision (tenant, model, with_memory, id) where model is not null;
comment on table decision is 'What was done with an answer, and why: its signals, the probability that it is right, the threshold it was held to.';
comment on column decision.parent_id is 'The decision that led to this one: an answer that was tried again in another way, or asked back about in the turn before.';
comment on column decision.message_id is 'The reply that the action led to: the answer, or what was said in its place; NULL for answers to gold questions and for those in whose place another was shown.';
comment on column decision.instead_id is 'The reply that was shown in place of this answer.';
comment on column decision.action is 'answer: given; flag: given with doubt, or of less worth than another; retrieve, retry, escalate: another answer took its place in this way, or it took another''s place in this way and was given without doubt; clarify, abstain: held back for a question, or for "I do not know."';
comment on column decision.answer is 'The answer, where no message holds it.';
comment on column decision.tier is 'Which signals were gathered; see calibrator.tier.';
comment on column decision.signal_ms is 'What each kind of signal cost, in milliseconds: free, question (nearness to it), review, second (the fallback''s answer), samples.';
comment on column decision.model is 'The generator; "first > second" where the second answered what the first was not sure of, "first + way" where the first answered again, with more memories (retrieve) or other sampling (retry): each has calibrators of its own.';
comment on column decision.total_ms is 'What deciding took, beyond generating the answer; where the answer was another attempt, all that this took.';
comment on column decision.probability is 'That the answer is right, by the calibrator; without one (right + 1) / (labels + 2) of the labels there are, the same for every answer (Laplace''s rule of succession).';
comment on column decision.alternatives is 'Other answers that were considered, each with what is known of it.';
comment on column decision.offered is 'Whether it was drawn at random, with the probability of the setting label_share, to be labelled.';
comment on column decision.propensity is 'The probability with which an offered answer was drawn, else 1: calibration and its figures weight labels by the inverse (Horvitz and Thompson 1952).';

create function _decision_forget() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if current_setting('mindful.pruning', true) is distinct from 'on' then
        delete from mindful.generation g using old_rows o where g.tenant = o.tenant and g.id = o.generation_id;
    end if;
    return null;
end
$$;
comment on function _decision_forget() is
'Deletes the record of an answer that is forgotten: its log-probabilities could confirm a guess. Records of pruned answers are kept for retention_audit_days. With the owner''s rights, as users do not change records.';
create trigger decision_deleted after delete on decision referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not mindful._is_restore()) execute function _decision_forget();

alter table gold enable row level security, force row level security;
create policy own on gold using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
alter table decision enable row level security, force row level security;
create policy own on decision using (tenant = (select mindful._tenant())) with check (tenant = (select mindful._tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.gold', '');
select pg_catalog.pg_extension_config_dump('mindful.gold_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.decision', '');
select pg_catalog.pg_extension_config_dump('mindful.decision_id_seq', '');

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('confidence_tier', 'integer', 0, 3, '{global,user,session}', '0',
        'Which signals are gathered for an answer that the free ones leave below the threshold: 1 compares it with the question, 2 asks the model''s fallback too, 3 samples four more answers.'),
    ('escalate', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether the answer of the model''s fallback is given where the model''s own is below its threshold and the other''s reaches its own.'),
    ('abstain_below', 'number', 0, 1, '{global,user,session}', '0',
        'Flagged answers with a lower probability are withheld: the reply says so, the answer is kept in decision.'),
    ('flag_notice', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether llm_chat ends a flagged reply with a sentence that says how sure it is; the stored message is without.');

create function _recall_coverage(query text, memory_ids bigint[])
returns table (
    coverage double precision,
    best double precision,
    mean double precision,
    length double precision,
    asking double precision
)
language sql stable parallel safe security invoker rows 1
begin atomic
    with term as (
        select q.lexeme, pg_catalog.ln(1 + total.memories / (1 + (
            select pg_catalog.count(*) from mindful.memory_term h
            where h.tenant = (select mindful._tenant()) and h.lexeme = q.lexeme
        ))) as idf
        from mindful._memory_total() total, mindful._terms(query) q
    ),
    held as (
        select p.id, p.length, t.lexeme, t.idf
        from term t
        join mindful.memory_term p on p.tenant = (select mindful._tenant()) and p.lexeme = t.lexeme and p.id = any (memory_ids)
    )
    select coalesce((select pg_catalog.sum(d.idf) from (select distinct h.lexeme, h.idf from held h) d) / s.total, 0),
        coalesce(m.best / s.total, 0), coalesce(m.total / s.total / nullif(pg_catalog.cardinality(memory_ids), 0), 0),
        coalesce(pg_catalog.ln(1 + m.length), 0), coalesce((
            select pg_catalog.avg(
                (pg_catalog.right(pg_catalog.rtrim(a.content, E' \t\n\r"'')'), 1) = any (array['?', '？']))::integer)
            from mindful.memory a
            where a.tenant = (select mindful._tenant()) and a.id = any (memory_ids)
        )::double precision, 0)
    from (select pg_catalog.sum(t.idf) as total from term t) s,
        (
            select pg_catalog.max(one.idf) as best, pg_catalog.sum(one.idf) as total,
                (pg_catalog.array_agg(one.length order by one.idf desc, one.length desc))[1] as length
            from (select pg_catalog.sum(h.idf) as idf, pg_catalog.max(h.length) as length from held h group by h.id) one
        ) m;
end;
comment on function _recall_coverage(text, bigint[]) is
'Share of a query''s lexemes that memories hold: together, the best of them, and one of them in the mean, lexemes weighted by their rarity ln(1 + memories / (1 + holders)): of what recall alone can say it tells best whether the evidence was found. Besides the length of the best, ln(1 + lexemes), as a longer text holds an answer more often (Singhal, Buckley and Mitra 1996), and which share of them ends with a question mark: those ask, and tell nothing.';
