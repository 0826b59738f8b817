create function llm_extract(
    content text,
    json_schema jsonb,
    instruction text default null,
    model text default null,
    max_tokens integer default 512
) returns jsonb
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.structure import llm_extract
return llm_extract(content, json_schema, instruction, model, max_tokens)
$python$;
comment on function llm_extract(text, jsonb, text, text, integer) is
'Draws JSON that fits a JSON schema (draft 2020-12) from a text with a generator (NULL: the default one), which is held to the schema token by token; the result is validated, so it fits or there is an error. The instruction says what to look for. NULL content gives NULL. Members that the schema does not name are not made; pattern, patternProperties, $id and references to elsewhere are not supported; uniqueItems, multipleOf, not and the like are only checked in the end. Errors: 22004 (no schema), 22023 (bad schema, one that nothing fits, empty text), 22000 (the answer does not fit after all), 54000 (not complete after max_tokens, or text longer than the model''s context), 42704 (no such model), 55P03 (no free slot), 57014 (cancelled).';


create function llm_extract_many(
    contents text[],
    json_schema jsonb,
    instruction text default null,
    model text default null,
    max_tokens integer default 512
) returns jsonb[]
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.structure import llm_extract_many
return llm_extract_many(contents, json_schema, instruction, model, max_tokens)
$python$;
comment on function llm_extract_many(text[], jsonb, text, text, integer) is
'As llm_extract for many texts, evaluated side by side: the instruction and the schema are evaluated once, and the answers are made in shared batches. They stand in the order of the texts, NULL for NULL; a NULL array gives NULL. One that fails fails all; the message says which text it is about. Errors as llm_extract.';
