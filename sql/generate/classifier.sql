create table classifier (
    tenant text not null default _mindful.tenant(),
    name text not null check (btrim(name, E' \t\n\r') <> '' and octet_length(name) <= 1024),
    version uuid not null default gen_random_uuid(),
    embedder text not null,
    embedder_sha256 text not null,
    dims integer not null check (dims > 0),
    labels text[] not null,
    method text not null check (method in ('neighbors', 'logistic')),
    strength real not null,
    accuracy real not null,
    accuracy_neighbors real not null,
    accuracy_logistic real not null,
    accuracy_largest real not null,
    created_at timestamptz not null default now(),
    primary key (tenant, name)
);
comment on table classifier is 'Classifiers that classifier_train made from labeled rows of the tenant.';
comment on column classifier.version is 'Changes with every training, so that connections fit the classifier again.';
comment on column classifier.method is 'neighbors: votes of the nearest examples. logistic: multinomial logistic regression.';
comment on column classifier.strength is 'Number of neighbors, or the penalty of the regression.';
comment on column classifier.accuracy_neighbors is 'Accuracy of nearest neighbors in 5-fold cross-validation.';
comment on column classifier.accuracy_logistic is 'Accuracy of logistic regression in 5-fold cross-validation.';
comment on column classifier.accuracy_largest is 'Share of the most frequent label: the accuracy of always choosing it.';
alter table classifier enable row level security, force row level security;
create policy own on classifier using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.classifier', '');

create table classifier_example (
    tenant text not null default _mindful.tenant(),
    classifier text not null,
    number integer not null,
    label text not null,
    content_hash text not null,
    embedding bytea not null,
    primary key (tenant, classifier, number),
    foreign key (tenant, classifier) references classifier on delete cascade
);
create index classifier_example_hash on classifier_example (tenant, content_hash) where content_hash is not null;
comment on table classifier_example is
'Embeddings and labels that a classifier was trained on, without texts. Forgetting a memory with the same text deletes its rows.';
comment on column classifier_example.embedding is 'Numbers of four bytes, in the byte order of the server.';
alter table classifier_example enable row level security, force row level security;
create policy own on classifier_example using (tenant = (select _mindful.tenant()))
    with check (tenant = (select _mindful.tenant_claimed()));
select pg_catalog.pg_extension_config_dump('mindful.classifier_example', '');

create type classifier_detail as (
    name text,
    embedder text,
    labels text[],
    method text,
    examples bigint,
    accuracy real,
    accuracy_neighbors real,
    accuracy_logistic real,
    accuracy_largest real
);
comment on type classifier_detail is
'A classifier with its cross-validated accuracy and the accuracy of both methods. accuracy_largest is the share of the most frequent label.';

create function _mindful.embeddings_kept(embedder text, hashes text[]) returns table (content_hash text, embedding text)
language plpgsql stable parallel restricted security invoker
set search_path = pg_catalog, mindful, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query execute format('
        select distinct on (h.hash) h.hash, e.embedding::text
        from unnest($1) h (hash)
        cross join lateral (
            select m.id from mindful.memory m
            where m.tenant = (select _mindful.tenant()) and m.content_hash = h.hash
            offset 0
        ) m
        join mindful.%I e on e.tenant = (select _mindful.tenant()) and e.id = m.id and e.content_hash = h.hash',
        _mindful.embedding_table(embedder)) using hashes;
end
$$;
comment on function _mindful.embeddings_kept(text, text[]) is
'Returns the stored embeddings of texts that are memories, by the MD5 hash of the text.';

create function _mindful.classifier_write(
    name text,
    embedder text,
    embedder_sha256 text,
    labels text[],
    method text,
    strength real,
    accuracy real,
    accuracy_neighbors real,
    accuracy_logistic real,
    accuracy_largest real,
    example_labels text[],
    hashes text[],
    embeddings bytea,
    dims integer
) returns void
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.short_argument('name', name);
    perform _mindful.delete('classifier', jsonb_build_array(jsonb_build_object('name', name)));
    insert into mindful.classifier (name, embedder, embedder_sha256, dims, labels, method, strength, accuracy,
        accuracy_neighbors, accuracy_logistic, accuracy_largest)
    values (name, embedder, embedder_sha256, dims, labels, method, strength, accuracy,
        accuracy_neighbors, accuracy_logistic, accuracy_largest);
    insert into mindful.classifier_example (classifier, number, label, content_hash, embedding)
    select name, e.number, e.label, e.hash, substr(embeddings, (e.number::integer - 1) * 4 * dims + 1, 4 * dims)
    from unnest(example_labels, hashes) with ordinality e (label, hash, number);
end
$$;
comment on function _mindful.classifier_write(text, text, text, text[], text, real, real, real, real, real, text[], text[], bytea, integer) is
'Stores a classifier with its examples in place of one of the same name.';

create function _mindful.classifier_find(name text) returns table (
    tenant text, version uuid, embedder text, embedder_sha256 text, method text, strength real, examples bigint
)
language sql stable parallel safe security invoker
begin atomic
    select c.tenant, c.version, c.embedder, c.embedder_sha256, c.method, c.strength,
        (select pg_catalog.count(*) from mindful.classifier_example e where e.tenant = c.tenant and e.classifier = c.name)
    from mindful.classifier c
    where c.tenant = (select _mindful.tenant()) and c.name = classifier_find.name;
end;
comment on function _mindful.classifier_find(text) is 'Returns a classifier of the tenant.';

create function _mindful.classifier_examples(name text) returns table (label text, embedding bytea)
language sql stable parallel safe security invoker
begin atomic
    select e.label, e.embedding from mindful.classifier_example e
    where e.tenant = (select _mindful.tenant()) and e.classifier = classifier_examples.name
    order by e.number;
end;
comment on function _mindful.classifier_examples(text) is 'Returns the examples of a classifier in their order.';

create function classifier_train(name text, query text, embedder text default null) returns classifier_detail
language plpython3u volatile parallel unsafe security invoker cost 1000000
set search_path = pg_catalog, mindful, pg_temp
as $python$
from mindful.generate.classifier import classifier_train
return classifier_train(name, query, embedder)
$python$;
comment on function classifier_train(text, text, text) is
'Trains a classifier on labeled rows, for llm_classify(..., classifier => name), and returns its accuracy. query runs with the caller''s rights and returns a text and its label, in 10 to 10000 rows. Errors: 22004, 22023, 25006, 42501, 42601, 42704, 54000, 57014. Example: select * from classifier_train(''priority'', ''select subject, priority from public.ticket'');';

create function classifier_list() returns setof classifier_detail
language sql stable parallel safe security invoker rows 10
begin atomic
    select c.name, c.embedder, c.labels, c.method,
        (select pg_catalog.count(*) from mindful.classifier_example e where e.tenant = c.tenant and e.classifier = c.name),
        c.accuracy, c.accuracy_neighbors, c.accuracy_logistic, c.accuracy_largest
    from mindful.classifier c
    where c.tenant = (select _mindful.tenant())
    order by c.name;
end;
comment on function classifier_list() is
'Returns the tenant''s classifiers by name, with the number of examples that are left and the accuracy at training. Example: select name, method, accuracy from classifier_list();';

create function classifier_delete(name text) returns boolean
language plpgsql volatile parallel unsafe security invoker
set search_path = pg_catalog, mindful, pg_temp
as $$
begin
    perform _mindful.writable();
    if not exists (
        select from mindful.classifier c where c.tenant = (select _mindful.tenant()) and c.name = classifier_delete.name
    ) then
        return false;
    end if;
    perform _mindful.delete('classifier', jsonb_build_array(jsonb_build_object('name', name)));
    return true;
end
$$;
comment on function classifier_delete(text) is
'Deletes a classifier with its examples and returns whether it existed. Errors: 25006 (read-only transaction), 55000 (no tenant is set). Example: select classifier_delete(''priority'');';
