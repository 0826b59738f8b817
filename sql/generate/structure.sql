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
'Extracts JSON that fits a JSON schema (draft 2020-12) from a text with a generator (NULL: the default one). NULL content gives NULL. Errors: 22000 (the answer does not fit), 22004, 22023, 42704, 54000, 55P03, 57014. Example: select llm_extract(''Ana is 31.'', ''{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'');';

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
