create table gold (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    question text not null,
    answers text[] not null,
    memories text[] not null default '{}',
    source text not null default '',
    created_at timestamptz not null default now(),
    primary key (tenant, id)
);
comment on table gold is
'Questions with known answers, to measure a model by. They are not memories and are never recalled.';
comment on column gold.answers is
'Right answers; each of them is enough. Empty: the question has no answer, and every answer to it is wrong.';
comment on column gold.memories is 'Texts that the prompt showed as memories.';
comment on column gold.source is
'Name of a group, such as one conversation. With 20 groups or more, none is split between fitting and testing. With fewer, each question is a group of its own.';

create table decision (
    tenant text not null default _mindful.tenant(),
    id bigint generated always as identity,
    parent_id bigint,
    message_id bigint,
    replaced_by_id bigint,
    gold_id bigint,
    generation_id bigint,
    answer text,
    model text not null,
    ways text[] not null default '{}' check (ways <@ '{retrieve,retry,escalate}'),
    second_model text,
    with_memory boolean not null,
    signal_tier integer not null check (signal_tier between 0 and 3),
    signals jsonb not null check (jsonb_typeof(signals) = 'object'),
    signal_ms jsonb not null default '{}',
    probability double precision not null check (probability between 0 and 1),
    calibrator_id bigint,
    threshold_id bigint,
    threshold double precision,
    action text not null check (action in ('answer', 'retrieve', 'retry', 'escalate', 'clarify', 'flag', 'abstain', 'uncalibrated')),
    reason text not null,
    alternatives jsonb not null default '[]',
    offered boolean not null default false,
    propensity double precision not null default 1 check (propensity > 0 and propensity <= 1),
    total_ms double precision not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    after bigint[] not null default '{}',
    primary key (tenant, id),
    foreign key (tenant, parent_id) references decision on delete set null (parent_id),
    foreign key (tenant, message_id) references memory on delete cascade,
    foreign key (tenant, replaced_by_id) references memory on delete cascade,
    foreign key (tenant, gold_id) references gold on delete cascade,
    foreign key (tenant, generation_id) references generation on delete set null (generation_id),
    foreign key (tenant, calibrator_id) references calibrator,
    foreign key (tenant, threshold_id) references threshold,
    check ((second_model is not null) = ('escalate' = any (ways)))
);
create index on decision (tenant, message_id) where message_id is not null;
create index on decision (tenant, replaced_by_id) where replaced_by_id is not null;
create index on decision (tenant, parent_id) where parent_id is not null;
create index on decision (tenant, gold_id) where gold_id is not null;
create index on decision (tenant, generation_id) where generation_id is not null;
create index on decision (tenant, model, with_memory, id) where model is not null;
create index on decision (tenant, threshold_id, id) where threshold_id is not null;
comment on table decision is
'One row per answer: its signals, the probability that it is right, the threshold, the action and the reason.';
comment on column decision.parent_id is
'The decision that led to this one: about an earlier attempt at the same reply, or about the turn that asked back.';
comment on column decision.message_id is
'The reply that was shown. NULL for answers to gold questions and for answers that another answer replaced.';
comment on column decision.replaced_by_id is 'The reply that was shown instead of this answer.';
comment on column decision.after is 'Thresholds that this answer, or earlier attempts at the reply, did not reach before.';
comment on column decision.action is
'answer: given without a flag. flag: given with a flag, or not chosen. uncalibrated: given, but answers of its kind have no calibrator yet, so its probability promises nothing. retrieve, retry, escalate: another attempt replaced this answer, or this attempt replaced another and reached its threshold. clarify: a question was asked back. abstain: the answer was withheld.';
comment on column decision.answer is 'The answer, if no message contains it.';
comment on column decision.signal_tier is 'Highest tier of signals that was gathered, see calibrator.signal_tier.';
comment on column decision.signal_ms is
'Cost of each kind of signal in milliseconds: free, question (similarity to the question), brief (the model''s brief answer), second (the fallback''s answer), samples.';
comment on column decision.model is 'The generator that was asked first. Each combination of model, ways and second_model has calibrators of its own.';
comment on column decision.ways is 'Other ways by which this answer was made, in order. Empty: a first answer. retrieve: with more memories; retry: by sampling again; escalate: by the fallback.';
comment on column decision.second_model is 'The generator that gave this answer after an escalation, else NULL.';
comment on column decision.total_ms is
'Milliseconds of the decision without the generation of the first answer. For a further attempt, all of its time.';
comment on column decision.probability is
'Probability that the answer is right, by the calibrator: of answers with this probability, about this share is right. Without a calibrator it comes from the ranking that the package ships for the model, with the base rate of the tenant''s labels. If none is shipped, it is (right + 1) / (labels + 2), the same for every answer (Laplace''s rule of succession).';
comment on column decision.alternatives is
'Other answers that were considered: objects with model, answer and, for samples, times.';
comment on column decision.offered is
'Whether the answer was drawn at random for a label: of flagged ones the share of the setting label_share; before a threshold is certified all with a probability from 0.3 on, and a quarter of the others.';
comment on column decision.propensity is
'Probability with which an offered answer was drawn, else 1. Calibration weights labels by its inverse (Horvitz and Thompson 1952).';

create function _mindful.decision_forget() returns trigger
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
comment on function _mindful.decision_forget() is
'Deletes the generation of a forgotten answer, as its log-probabilities could confirm a guess. Generations of pruned answers stay for retention_audit_days. It runs with the owner''s rights, as users may not delete generations.';
create trigger decision_deleted after delete on decision referencing old table as old_rows
    for each statement when (pg_catalog.current_setting('row_security') = 'on' or not _mindful.is_restore()) execute function _mindful.decision_forget();

alter table gold enable row level security, force row level security;
create policy own on gold using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
alter table decision enable row level security, force row level security;
create policy own on decision using (tenant = (select _mindful.tenant())) with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.gold', '');
select pg_catalog.pg_extension_config_dump('mindful.gold_id_seq', '');
select pg_catalog.pg_extension_config_dump('mindful.decision', '');
select pg_catalog.pg_extension_config_dump('mindful.decision_id_seq', '');

insert into setting_definition (key, type, low, high, scopes, initial, description) values
    ('signal_tier', 'integer', 0, 3, '{global,user,session}', '0',
        'Highest tier of signals for answers that tier 0 leaves below the threshold. 1: similarity to the question and the model''s brief answer; 2: also the fallback''s answer; 3: also four samples.'),
    ('chat_escalate', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether the answer of the model''s fallback is given if the model''s own answer is below its threshold and the fallback''s reaches its own.'),
    ('chat_abstain_below', 'number', 0, 1, '{global,user,session}', '0',
        'Flagged answers with a lower probability are withheld. The reply is "I do not know.", and decision stores the answer.'),
    ('chat_flag_notice', 'boolean', null, null, '{global,user,session}', 'false',
        'Whether llm_chat adds a sentence about its confidence to a flagged reply. The stored message does not have it.');

create function _mindful.recall_coverage(query text, memory_ids bigint[])
returns table (
    coverage double precision,
    best double precision,
    mean double precision,
    length double precision,
    asking double precision
)
language plpgsql stable parallel safe security invoker rows 1
set search_path = pg_catalog, mindful, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    with term as materialized (
        select q.lexeme, ln(1 + total.memories / (1 + coalesce(t.holders, 0))) as idf
        from _mindful.memory_total() total
        cross join _mindful.terms(query) q
        left join _mindful.recall_terms(query) t on t.lexeme = q.lexeme
    ),
    -- OFFSET 0 looks each posting up by its whole key; else all postings of the tenant are read.
    holder as materialized (
        select i.id, p.length, t.lexeme, t.idf
        from term t
        cross join unnest(memory_ids) i (id)
        cross join lateral (
            select h.length from mindful.memory_term h
            where h.tenant = (select _mindful.tenant()) and h.lexeme = t.lexeme and h.id = i.id
            offset 0
        ) p
    )
    select coalesce((select sum(d.idf) from (select distinct h.lexeme, h.idf from holder h) d) / s.total, 0),
        coalesce(m.best / s.total, 0), coalesce(m.total / s.total / nullif(cardinality(memory_ids), 0), 0),
        coalesce(ln(1 + m.length), 0), coalesce((
            select avg((right(rtrim(a.content, E' \t\n\r"'')'), 1) = any (array['?', '？']))::integer)
            from unnest(memory_ids) i (id)
            cross join lateral (
                select a.content from mindful.memory a where a.tenant = (select _mindful.tenant()) and a.id = i.id offset 0
            ) a
        )::double precision, 0)
    from (select sum(t.idf) as total from term t) s,
        (
            select max(one.idf) as best, sum(one.idf) as total,
                (array_agg(one.length order by one.idf desc, one.length desc))[1] as length
            from (select sum(h.idf) as idf, max(h.length) as length from holder h group by h.id) one
        ) m;
end
$$;
comment on function _mindful.recall_coverage(text, bigint[]) is
'Returns shares of a query''s lexemes that memories contain, weighted by rarity ln(1 + memories / (1 + memories with the lexeme)): coverage by all, best by the best memory, mean over memories. length is ln(1 + lexemes) of the best memory, as longer texts contain more (Singhal, Buckley and Mitra 1996). asking is the share of memories that end with a question mark.';
