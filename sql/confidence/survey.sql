-- Models belong to no tenant, and neither do their answers to questions that every tenant may know.
create table model_answer (
    model text not null references model on delete cascade,
    survey text not null,
    questions integer not null check (questions > 0),
    place integer not null check (place between 1 and questions),
    with_memory boolean not null,
    signals jsonb not null,
    correct boolean not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp(),
    primary key (model, survey, place)
);
comment on table model_answer is
'Signals and labels of the answers that model_calibrate gathers. It holds no text. A stopped run continues after them.';
comment on column model_answer.survey is
'SHA-256 of the model''s file and prompt form, the questions and the tier of signals.';
comment on column model_answer.place is 'Position of the question, from 1.';

create table model_ranking (
    id bigint generated always as identity primary key,
    model text not null references model on delete cascade,
    survey text not null,
    sha256 text not null,
    form text not null,
    with_memory boolean not null,
    signal_tier integer not null check (signal_tier between 0 and 3),
    features text[] not null,
    means double precision[] not null,
    scales double precision[] not null,
    weights double precision[] not null,
    intercept double precision not null,
    labels integer not null check (labels > 0),
    wrong integer not null check (wrong between 0 and labels),
    metrics jsonb not null,
    made_by text not null default current_user,
    created_at timestamptz not null default clock_timestamp()
);
create index on model_ranking (model, with_memory, signal_tier, id);
comment on table model_ranking is
'Rankings that model_calibrate fitted, with the columns of calibrator. They order the answers of all tenants until a tenant''s labels take over, as the rankings that the package ships. The newest of a model, its file, form, kind of prompt and tier counts.';
comment on column model_ranking.form is
'The prompt form: chat, or a hash of the options template, layout and stop.';
comment on column model_ranking.metrics is
'Figures on answers that were not fitted to (cross-validation), each with the bounds of its 95% interval.';

alter table model_answer enable row level security, force row level security;
create policy use on model_answer for select using (model in (select m.name from mindful.model m));
create policy administer on model_answer to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model_answer', '');
alter table model_ranking enable row level security, force row level security;
create policy use on model_ranking for select using (model in (select m.name from mindful.model m));
create policy administer on model_ranking to mindful_admin using (true) with check (true);
select pg_catalog.pg_extension_config_dump('mindful.model_ranking', '');
select pg_catalog.pg_extension_config_dump('mindful.model_ranking_id_seq', '');

create view model_calibration with (security_invoker = true) as
select a.model, count(*) as answered, max(a.questions) as questions, count(*) filter (where a.correct) as correct,
    min(a.created_at) as started_at, max(a.created_at) as answered_at,
    (select max(r.created_at) from mindful.model_ranking r where r.model = a.model and r.survey = a.survey) as fitted_at
from mindful.model_answer a
group by a.model, a.survey;
comment on view model_calibration is
'Progress of model_calibrate, a row for each model and set of questions: how many are answered, how many of these rightly, and when the rankings were fitted (NULL: not yet). Shows the models that you may use.';

create function _mindful.model_calibrate_some(name text, gold jsonb, signal_tier integer, most integer) returns integer
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.survey import model_calibrate_some
return model_calibrate_some(name, gold, signal_tier, most)
$python$;
comment on function _mindful.model_calibrate_some(text, jsonb, integer, integer) is
'Has a model answer at most so many questions of model_calibrate, and returns how many are left. With none left it fits the rankings.';

create procedure model_calibrate(name text, gold jsonb default null, signal_tier integer default 1)
language plpython3u security invoker
as $python$
from mindful.confidence.survey import model_calibrate
return model_calibrate(name, gold, signal_tier)
$python$;
comment on procedure model_calibrate(text, jsonb, integer) is
'Has a generator answer questions whose answers are known, and fits rankings that order its answers for all tenants before they have labels. For administrators (mindful_admin and mindful_user). After a cancel, the same call continues. Errors: 22004, 22023, 42501, 42704, 55000, 57014. Example: call model_calibrate(''gemma'');';
