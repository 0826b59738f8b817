-- One line for every property of every object of the extension, and of what else stands in its schema (the tables
-- of embeddings). Two databases with the same lines are the same to every user. Run with an empty search_path.
with extension as (
    select * from pg_extension where extname = 'mindful'
),
member as (
    select d.classid, d.objid
    from pg_depend d join extension e on d.refobjid = e.oid
    where d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
),
relation as (
    select c.*, c.oid::regclass::text as name
    from pg_class c
    where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S', 'c', 'f')
),
line (kind, name, property) as (
    select 'extension', extname, concat_ws(' ', extversion, extnamespace::regnamespace, extrelocatable) from extension
    union all
    select 'schema', n.nspname, concat_ws(' ', pg_get_userbyid(n.nspowner), array_sorted)
    from pg_namespace n
    cross join lateral (select array(select a::text from unnest(coalesce(n.nspacl, acldefault('n', n.nspowner))) a order by 1) as array_sorted) acl
    where n.nspname in ('mindful', '_mindful')
    union all
    select 'configuration', t.relation::oid::regclass::text, t.condition
    from extension e cross join lateral unnest(e.extconfig, e.extcondition) t (relation, condition)
    union all
    select 'member', pg_describe_object(classid, objid, 0), null from member
    union all
    select 'initial privileges', pg_describe_object(i.classoid, i.objoid, i.objsubid),
        array(select a::text from unnest(i.initprivs) a order by 1)::text
    from pg_init_privs i join member m on (m.classid, m.objid) = (i.classoid, i.objoid)
    union all
    select 'comment', pg_describe_object(d.classoid, d.objoid, d.objsubid), d.description
    from pg_description d
    where (d.classoid, d.objoid) in (select classid, objid from member)
        or d.classoid = 'pg_class'::regclass and d.objoid in (select oid from relation)
    union all
    select 'function', p.oid::regprocedure::text, concat_ws(' ', pg_get_userbyid(p.proowner),
        case when p.prokind = 'a' then (select row_to_json(a)::text from pg_aggregate a where a.aggfnoid = p.oid)
            else pg_get_functiondef(p.oid) end)
    from pg_proc p where p.pronamespace in ('mindful'::regnamespace, '_mindful'::regnamespace)
    union all
    select 'function privileges', p.oid::regprocedure::text,
        array(select a::text from unnest(coalesce(p.proacl, acldefault('f', p.proowner))) a order by 1)::text
    from pg_proc p where p.pronamespace in ('mindful'::regnamespace, '_mindful'::regnamespace)
    union all
    select 'relation', name, concat_ws(' ', relkind, relpersistence, pg_get_userbyid(relowner), reloptions::text,
        'row security', relrowsecurity, 'forced', relforcerowsecurity)
    from relation
    union all
    select 'relation privileges', name,
        array(select a::text
            from unnest(coalesce(relacl, acldefault((case relkind when 'S' then 's' else 'r' end)::"char", relowner))) a order by 1)::text
    from relation
    union all
    select 'column', format('%s %s', r.name, row_number() over (partition by a.attrelid order by a.attnum)),
        concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
            'identity', nullif(a.attidentity, ''), 'generated', nullif(a.attgenerated, ''),
            'default', pg_get_expr(d.adbin, d.adrelid), 'storage', a.attstorage, nullif(a.attcompression, ''),
            'statistics', a.attstattarget, nullif(a.attcollation, 0)::regcollation, array(select x::text from unnest(a.attacl) x order by 1)::text)
    from relation r
    join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
    union all
    select 'constraint', format('%s %s', r.name, c.conname), concat_ws(' ', pg_get_constraintdef(c.oid), c.convalidated)
    from pg_constraint c join relation r on r.oid = c.conrelid
    union all
    select 'domain constraint', t.oid::regtype::text, pg_get_constraintdef(c.oid)
    from pg_constraint c join pg_type t on t.oid = c.contypid where t.typnamespace = 'mindful'::regnamespace
    union all
    select 'index', i.indexrelid::regclass::text, concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid, 'statistics',
            array(select a.attstattarget from pg_attribute a where a.attrelid = i.indexrelid order by a.attnum)::text)
    from pg_index i join relation r on r.oid = i.indrelid
    union all
    select 'trigger', format('%s %s', r.name, t.tgname), concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled)
    from pg_trigger t join relation r on r.oid = t.tgrelid where not t.tgisinternal
    union all
    select 'rule', format('%s %s', r.name, w.rulename), pg_get_ruledef(w.oid)
    from pg_rewrite w join relation r on r.oid = w.ev_class
    union all
    select 'policy', format('%s %s', r.name, p.polname), concat_ws(' ', p.polcmd, p.polpermissive,
        array(select case when o = 0 then 'public' else pg_get_userbyid(o) end from unnest(p.polroles) o order by 1)::text,
        'using', pg_get_expr(p.polqual, p.polrelid), 'check', pg_get_expr(p.polwithcheck, p.polrelid))
    from pg_policy p join relation r on r.oid = p.polrelid
    union all
    select 'sequence', r.name, concat_ws(' ', format_type(s.seqtypid, null), s.seqstart, s.seqincrement, s.seqmax, s.seqmin,
        s.seqcache, s.seqcycle)
    from pg_sequence s join relation r on r.oid = s.seqrelid
    union all
    select 'type', t.oid::regtype::text, concat_ws(' ', t.typtype, pg_get_userbyid(t.typowner),
        array(select e.enumlabel from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder)::text,
        array(select a::text from unnest(coalesce(t.typacl, acldefault('T', t.typowner))) a order by 1)::text)
    from pg_type t where t.typnamespace = 'mindful'::regnamespace and t.typelem = 0
)
select concat_ws(' | ', kind, name, property) as line
from line
order by concat_ws(' | ', kind, name, property) collate "C";
