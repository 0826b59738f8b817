create type status_detail as (
    extension_version text,
    package_version text,
    server_version text,
    vector_version text,
    python_version text,
    python_prefix text,
    llama_cpp_version text,
    tenant text,
    backend_pid integer,
    private_bytes bigint,
    shared_bytes bigint,
    models jsonb
);
comment on type status_detail is
'Result of mindful_status: versions, Python environment, memory and loaded models of the connection.';

create function mindful_status() returns status_detail
language plpython3u stable parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.models.status import mindful_status
return mindful_status()
$python$;
comment on function mindful_status() is
'Returns versions, the Python environment, the tenant, and the memory and loaded models of this connection. private_bytes is memory of this process alone, shared_bytes memory that it shares with others, such as mapped model files. models is an array of objects, one for each loaded or served model.';
