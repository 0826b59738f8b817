create function calibration_import(
    gold text,
    model text default null,
    source text default '',
    memories integer default null,
    max_tokens integer default 64,
    tier integer default 0
) returns integer
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.gold import calibration_import
return calibration_import(gold, model, source, memories, max_tokens, tier)
$python$;
comment on function calibration_import(text, text, text, integer, integer, integer) is
'Has a generator (NULL: the default one) answer questions whose answers are known, as llm_chat would in a new session, grades the answers (see _answer_grade), and returns how many there were: labels for calibrate. Gold is JSON Lines, one object a line with question, answers (an array of texts, any of which is right; empty where no answer is) and, if wanted, memories (texts that are shown in place of recalled ones) and source (what must not be split between fitting and testing; else the argument). Signals are gathered up to the tier (see calibrator.tier); from tier 2 on the fallback''s answers are labelled too, as those of "first > second". Nothing is remembered as a memory. All or none: the error names the line. Errors: 22004, 22023 (broken line), 42704 (no such model), 54000 (a question longer than the context), 55000 (no embedder or fallback for the tier), 57014 (cancelled).';

create type calibration_detail as (
    model text,
    with_memory boolean,
    tier integer,
    labels integer,
    wrong integer,
    calibrator_id bigint,
    threshold_id bigint,
    status text,
    threshold double precision,
    bound double precision,
    coverage double precision,
    metrics jsonb,
    reason text
);
comment on type calibration_detail is 'What calibrate made of one kind of a model''s answers.';

create function calibrate(
    model text default null,
    error_budget double precision default 0.1,
    delta double precision default 0.1,
    budget_kind text default 'answers'
) returns setof calibration_detail
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 2
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.calibration import calibrate
return calibrate(model, error_budget, delta, budget_kind)
$python$;
comment on function calibrate(text, double precision, double precision, text) is
'Learns from the labels of a generator''s answers (NULL: the default one) how probable it is that an answer is right, and certifies from which probability on answers may be given unflagged: at most a share error_budget of the answers given is wrong (budget_kind answers, with probability 1 - delta over the labels; by exact binomial tests in a fixed sequence), or at most that share of all questions gets a wrong answer (questions, in the mean; conformal risk control). One row for answers without memories in the prompt, one for those with, for each tier of signals that were gathered and each way to an answer (see decision.model). Half of the labels are fitted to, half tested on; a label of an answer that was offered at random stands for those that were not (see decision.propensity). From 30 labels on; one signal for every 8 labels of the rarer kind; isotonic regression from 1000 labels with 200 of the rarer kind. A new calibrator takes the place of one in force only if it does better on labels that are newer than that one; a repeated test of the same promise spends its share of delta. Status: certified, infeasible (the reason says what is lacking; every answer is flagged) or uncalibrated. Coverage is the share of the labelled answers that the threshold lets through; metrics are figures on answers not fitted to, each with the bounds of its 95% interval. Needs scikit-learn. Errors: 22004, 22023 (budget or delta not between 0 and 1), 42704 (no such model), 55000 (no labels, too few, or of one kind only), 0A000 (scikit-learn not installed).';
