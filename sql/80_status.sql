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
comment on type status_detail is 'What mindful runs on, and what this connection holds.';

create function mindful_status() returns status_detail
language plpython3u stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.status import mindful_status
return mindful_status()
$python$;
comment on function mindful_status() is
'Versions of the extension and its parts, where Python lives, whose memories the caller sees, the memory of this connection''s process (private bytes are its own, shared ones it maps together with others), and the models it has loaded, each with load_ms and private_bytes.';

