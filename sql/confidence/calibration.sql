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
'Has a generator (NULL: the default one) answer gold questions, grades its answers, stores them as labels for calibrate, and returns their number. Errors: 22004, 22023, 42704 (no such model), 54000 (question too long), 55000, 57014 (cancelled). Example: select gold_evaluate(''[{"question": "Who wrote Hamlet?", "answers": ["Shakespeare"]}]'');';

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
'Fits the probability that a generator''s answers are right, and certifies a threshold from which answers are given unflagged. NULL is the default generator. It learns from labels (answer_label, gold_evaluate). Errors: 22004, 22023, 42704 (no such model), 55000 (no labels, too few, or of one kind only). Example: select model, status, threshold, reason from calibrate(error_budget => 0.2);';
