create function _mindful.memory_derived_delete() returns trigger
language plpgsql volatile parallel unsafe security definer
set search_path = pg_catalog, mindful, pg_temp
set mindful.tenant = '' -- else the owner, who may set any tenant, would act for the user's value
set enable_seqscan = off
as $$
declare
    tenants text[];
    hashes text[];
begin
    if tg_op = 'UPDATE' then
        select array_agg(o.tenant), array_agg(o.content_hash) into tenants, hashes
        from old_rows o join new_rows n on n.tenant = o.tenant and n.id = o.id
        where n.content_hash <> o.content_hash;
    else
        select array_agg(o.tenant), array_agg(o.content_hash) into tenants, hashes from old_rows o;
    end if;
    delete from mindful.classifier_example e
    using unnest(tenants, hashes) o (tenant, content_hash)
    where e.tenant = o.tenant and e.content_hash = o.content_hash
        and not exists (
            select from mindful.memory m where m.tenant = o.tenant and m.content_hash = o.content_hash
        );
    delete from mindful.cached_result c where c.tenant = any (tenants);
    return null;
end
$$;
comment on function _mindful.memory_derived_delete() is
'Deletes what was computed from deleted or changed texts: examples of classifiers with the same text, and the tenant''s kept answers, of which nothing records what texts they rest on.';
create trigger derived_deleted after delete on memory referencing old table as old_rows
    for each statement execute function _mindful.memory_derived_delete();
create trigger derived_updated after update on memory referencing old table as old_rows new table as new_rows
    for each statement execute function _mindful.memory_derived_delete();
