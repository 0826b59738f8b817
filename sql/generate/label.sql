create type label_detail as (label text, probability real, probabilities jsonb);
comment on type label_detail is 'The most probable label of a text, its probability, and the probabilities of all labels.';

create function llm_classify(
    content text,
    labels text[] default null,
    instruction text default null,
    model text default null,
    subtract_prior boolean default true,
    descriptions jsonb default null,
    examples jsonb default null,
    classifier text default null
) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.label import llm_classify
return llm_classify(content, labels, instruction, model, subtract_prior, descriptions, examples, classifier)
$python$;
comment on function llm_classify(text, text[], text, text, boolean, jsonb, jsonb, text) is
'Chooses the label that fits a text best with a generator (NULL: the default one), without generating tokens. NULL content gives NULL. classifier replaces the generator by one that classifier_train made. llm_classify_many is faster for many rows. Errors: 22004, 22023, 42704, 54000, 55000, 55P03, 57014. Example: select llm_classify(''Superb!'', ''{praise,complaint}'');';

create function llm_classify_many(
    contents text[],
    labels text[] default null,
    instruction text default null,
    model text default null,
    subtract_prior boolean default true,
    descriptions jsonb default null,
    examples jsonb default null,
    classifier text default null
) returns label_detail[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.label import llm_classify_many
return llm_classify_many(contents, labels, instruction, model, subtract_prior, descriptions, examples, classifier)
$python$;
comment on function llm_classify_many(text[], text[], text, text, boolean, jsonb, jsonb, text) is
'Classifies many texts as llm_classify does, in shared batches, and returns an array in the order of the texts. An element has the label, its probability, and the probabilities of all labels. A NULL element or array gives NULL. Errors as llm_classify. Example: select d.label, d.probability from unnest(llm_classify_many(''{Superb!,Awful.}'', ''{praise,complaint}'')) d;';

create function llm_if(content text, condition text, model text default null) returns boolean
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.label import llm_if
return llm_if(content, condition, model)
$python$;
comment on function llm_if(text, text, text) is
'Returns whether a statement is true of a text, by a generator (NULL: the default one). A NULL text or condition gives NULL. Errors: 22023 (empty text or condition), 42704 (no such model), 54000 (text longer than the context), 55P03 (no free slot), 57014 (cancelled). Example: select llm_if(''Superb!'', ''The writer is pleased.'');';

create function llm_if_many(contents text[], condition text, model text default null) returns boolean[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.label import llm_if_many
return llm_if_many(contents, condition, model)
$python$;
comment on function llm_if_many(text[], text, text) is
'Returns for many texts whether a statement is true of them, as llm_if does, in shared batches and in their order. A NULL element gives NULL, a NULL array or condition gives NULL. Errors as llm_if.';
