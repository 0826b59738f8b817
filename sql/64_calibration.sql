create function calibration_import(
    gold text,
    model text default null,
    source text default '',
    memories integer default 3,
    max_tokens integer default 64
) returns integer
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.gold import calibration_import
return calibration_import(gold, model, source, memories, max_tokens)
$python$;
comment on function calibration_import(text, text, text, integer, integer) is
'Has a generator (NULL: the default one) answer questions whose answers are known, as llm_chat would in a new session, grades the answers (see _answer_grade), and returns how many there were: labels for calibrate. Gold is JSON Lines, one object a line with question, answers (an array of texts, any of which is right; empty where no answer is) and, if wanted, memories (texts that are shown in place of recalled ones) and source (what must not be split between fitting and testing; else the argument). Nothing is remembered as a memory. All or none: the error names the line. Errors: 22004, 22023 (broken line), 42704 (no such model), 54000 (a question longer than the context), 57014 (cancelled).';
