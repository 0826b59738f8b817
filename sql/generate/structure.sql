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
from mindful.generate.structure import llm_extract
return llm_extract(content, json_schema, instruction, model, max_tokens)
$python$;
comment on function llm_extract(text, jsonb, text, text, integer) is
'Extracts JSON that fits a JSON schema (draft 2020-12) from a text with a generator (NULL: the default one). A grammar restricts every token to the schema, and the result is validated. NULL content gives NULL. instruction tells the model what to extract. max_tokens (at least 1) is the largest number of generated tokens. The result has only members that the schema names. pattern, patternProperties, $id and references outside the schema are not supported. Some keywords, such as uniqueItems, multipleOf and not, are checked at the end only. Errors: 22000 (the answer does not fit), 22004 (no schema), 22023 (bad or unsatisfiable schema, empty text), 42704 (no such model), 54000 (answer incomplete after max_tokens, or text longer than the context), 55P03 (no free slot), 57014 (cancelled). Example: select llm_extract(''Ana is 31.'', ''{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}'');';

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
from mindful.generate.structure import llm_extract_many
return llm_extract_many(contents, json_schema, instruction, model, max_tokens)
$python$;
comment on function llm_extract_many(text[], jsonb, text, text, integer) is
'Extracts JSON from many texts as llm_extract does, in shared batches, and returns it in the order of the texts. The instruction and the schema are evaluated once. A NULL element gives NULL, a NULL array gives NULL. If one text fails, the call fails, and the message has the position of the text. Errors as llm_extract.';
