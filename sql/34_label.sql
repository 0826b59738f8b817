create type label_detail as (label text, probability real, probabilities jsonb);
comment on type label_detail is 'The label that fits a text best, its probability, and those of all labels.';

create function llm_classify(
    content text,
    labels text[],
    instruction text default null,
    model text default null,
    subtract_prior boolean default true
) returns text
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.label import llm_classify
return llm_classify(content, labels, instruction, model, subtract_prior)
$python$;
comment on function llm_classify(text, text[], text, text, boolean) is
'Chooses the label that fits a text best with a generator (NULL: the default one), without generating: a label''s score is the mean log-probability (nats) of its tokens, its end included, as what completes a form with the instruction, the labels and the text; softmax over the labels gives probabilities. With subtract_prior each label''s score for an empty text is subtracted first (contextual calibration, Zhao et al. 2021), so that a label gains nothing by being common. The instruction says what the labels are about, such as "What is the sentiment of the text?". The text is read as one line. NULL gives NULL. For many rows llm_classify_many is faster. Errors: 22004 (labels null), 22023 (no label, more than 255, one twice, empty text), 42704 (no such model), 54000 (text longer than the model''s context).';

create function llm_classify_many(
    contents text[],
    labels text[],
    instruction text default null,
    model text default null,
    subtract_prior boolean default true
) returns setof label_detail
language plpython3u stable parallel restricted security invoker cost 1000000 rows 100
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.label import llm_classify_many
return llm_classify_many(contents, labels, instruction, model, subtract_prior)
$python$;
comment on function llm_classify_many(text[], text[], text, text, boolean) is
'As llm_classify for many texts in shared batches: one row a text, in their order, with the label, its probability, and the probabilities of all labels, which add up to 1, by label. NULL gives a row of NULLs. A NULL array gives no rows. Errors as llm_classify.';

create function llm_if(content text, condition text, model text default null) returns boolean
language plpython3u stable parallel restricted security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.label import llm_if
return llm_if(content, condition, model)
$python$;
comment on function llm_if(text, text, text) is
'Tells whether a statement, such as "The writer is pleased.", is true of a text, by the scores of the labels true and false with their priors subtracted; see llm_classify. NULL where the text or the condition is NULL. Errors: 22023 (empty text or condition), 42704 (no such model), 54000 (text longer than the model''s context).';


create function llm_if_many(contents text[], condition text, model text default null) returns boolean[]
language plpython3u stable parallel restricted security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.label import llm_if_many
return llm_if_many(contents, condition, model)
$python$;
comment on function llm_if_many(text[], text, text) is
'As llm_if for many texts in shared batches; the answers stand in the order of the texts, NULL for NULL. A NULL array or condition gives NULL. Errors as llm_if.';
