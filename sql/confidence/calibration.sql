create function gold_evaluate(
    gold jsonb,
    model text default null,
    source text default '',
    memories integer default null,
    max_tokens integer default 64,
    signal_tier integer default 0
) returns integer
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.gold import gold_evaluate
return gold_evaluate(gold, model, source, memories, max_tokens, signal_tier)
$python$;
comment on function gold_evaluate(jsonb, text, text, integer, integer, integer) is
'Has a generator answer gold questions, grades its answers, stores them as labels for calibrate, and returns their number. NULL is the default generator. gold is an array of objects with question (a text) and answers (an array of texts, each of them right; empty if the question has no answer). An object may have memories (texts shown instead of recalled ones) and source (a name; calibrate never splits a source between fitting and testing; default: the argument). Each question is asked as llm_chat would in a new session. signal_tier (0 to 3) is the highest tier of signals to gather, see calibrator.signal_tier. From tier 2 on the answers of the model''s fallback are labelled too. No memory is stored. An error in one item stores nothing, and names the item. Errors: 22004, 22023 (item, signal_tier), 42704 (no such model), 54000 (a question is longer than the context), 55000 (no embedder or no fallback for the tier), 57014 (cancelled). Example: select gold_evaluate(''[{"question": "Who wrote Hamlet?", "answers": ["Shakespeare"]}]'');';

create type calibration_detail as (
    model text,
    ways text[],
    second_model text,
    with_memory boolean,
    signal_tier integer,
    labels integer,
    wrong integer,
    calibrator_id bigint,
    threshold_id bigint,
    status text,
    threshold double precision,
    bound double precision,
    coverage double precision,
    metrics jsonb,
    reason text,
    budget double precision,
    delta_spent double precision,
    more_labels integer,
    ladder jsonb
);
comment on type calibration_detail is 'Result of calibrate for one kind of answers of a model.';

create function calibrate(
    model text default null,
    error_budget double precision default 0.1,
    delta double precision default 0.1,
    budget_kind text default 'answers'
) returns setof calibration_detail
language plpython3u volatile parallel unsafe security invoker cost 1000000 rows 2
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.confidence.calibration import calibrate
return calibrate(model, error_budget, delta, budget_kind)
$python$;
comment on function calibrate(text, double precision, double precision, text) is
'Fits the probability that a generator''s answers are right, and certifies a threshold from which answers are given unflagged. NULL is the default generator. It learns from labels (answer_label, gold_evaluate). error_budget (between 0 and 1) is the largest share of wrong answers. If budget_kind is answers, it limits the wrong share of the answers given, with probability 1 - delta over the labels (exact binomial tests in a fixed sequence). If budget_kind is questions, it limits the share of all questions that get a wrong answer, in the mean (conformal risk control). The test takes sessions and single gold questions as independent. Labels of one session count for less, by the correlation of their errors (Korn and Graubard 1998). The budgets 0.05, 0.1, 0.2, 0.3 and 0.5 are certified too. Each has its own delta; the setting error_budget selects one. Returns a row for each combination of ways to the answer (see decision.ways), memories in the prompt, and tier of signals that has labels. A threshold of a higher tier or of a second attempt is tested on answers that the thresholds before flag. Half of the labels are for the fit, half for the test. Labels drawn at random count for those that were not drawn (see decision.propensity). A fit needs 30 labels; isotonic regression needs 1000 labels with 200 of the rarer kind. A new calibrator replaces one in force only if it does better on labels newer than that one, and keeps its certified budgets. A certified threshold stays until labels show too many errors (see answer_label). A call without new labels changes nothing. A test is repeated when it has half as many labels more; each repetition spends a part of delta (delta_spent). status is certified, infeasible (every answer is flagged; see reason) or uncalibrated. coverage is the share of the labels of the test that reach the threshold. more_labels estimates the further labels of the test until a threshold passes; NULL if the most probable answers are too often wrong. ladder is an array with budget, status, threshold, bound, coverage and more_labels of each budget. metrics are figures on answers that were not fitted to, each with its 95% interval. Errors: 22004, 22023 (budget or delta not between 0 and 1), 42704 (no such model), 55000 (no labels, too few, or of one kind only). Example: select model, status, threshold, coverage, reason from calibrate(error_budget => 0.2);';
