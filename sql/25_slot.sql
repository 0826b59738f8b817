create function slot_status() returns table (slot integer, pid integer)
language plpython3u volatile parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.slot import slot_status
return slot_status()
$python$;
comment on function slot_status() is
'Returns the processes of this server that hold a slot for running a model, and then those that wait for one, in the order of the line: their slot is NULL. pid is that of pg_stat_activity; a batch may hold several slots. The setting model_slots says how many there are.';
