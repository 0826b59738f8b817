create function slot_status() returns table (slot integer, pid integer)
language plpython3u volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.core.slot import slot_status
return slot_status()
$python$;
comment on function slot_status() is
'Returns the processes of this server that hold a slot for running a model, then those that wait. slot is NULL for waiting processes, which come in the order of the queue. pid is the one of pg_stat_activity. A batch or a long prompt may hold several slots. The setting model_slots is the number of slots.';
