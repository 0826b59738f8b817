create function _mindful.aggregate_text(state text[]) returns text
language plpython3u volatile parallel unsafe security invoker cost 100000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.summary import aggregate_text
return aggregate_text(state)
$python$;
comment on function _mindful.aggregate_text(text[]) is
'Follows an instruction, the first element, over texts with the default generator.';

create function _mindful.aggregate_add(state text[], content text, instruction text) returns text[]
language plpgsql immutable parallel safe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    if instruction is null then
        perform _mindful.raise('22004', 'instruction is null', 'Pass a text that says what to do with the texts.');
    elsif state is null then
        state := array[instruction];
    elsif state[1] <> instruction then
        perform _mindful.raise('22023', 'instruction differs between rows', 'Pass the same instruction for all rows of a group.');
    elsif pg_column_size(state) > 1200000 then
        perform _mindful.raise('54000', 'the texts have more than 1048576 bytes',
            'Aggregate groups of texts, then the answers.');
    end if;
    return case when content is null then state else array_append(state, content) end;
end
$$;
comment on function _mindful.aggregate_add(text[], text, text) is
'Collects the texts of llm_aggregate after the instruction. Errors: 22004, 22023 (instruction), 54000 (too many texts).';

create aggregate llm_aggregate(content text, instruction text) (
    sfunc = _mindful.aggregate_add,
    stype = text[],
    finalfunc = _mindful.aggregate_text,
    parallel = unsafe
);
comment on aggregate llm_aggregate(text, text) is
'Aggregates texts into one answer to an instruction by the default generator, in the order of ORDER BY within the call. NULLs and empty texts are ignored; without texts the result is NULL. Errors: 22004, 22023 (instruction), 54000, 55000, 55P03, 57014. Example: select llm_aggregate(content, ''Which complaints do these reviews have in common?'' order by id) from memory;';
