revoke all on schema mindful, _mindful from public;
grant usage on schema mindful, _mindful to mindful_user, mindful_reader, mindful_admin;
revoke execute on all routines in schema mindful, _mindful from public;
grant execute on all routines in schema _mindful to mindful_user, mindful_reader, mindful_admin;
grant select on partition_map, partition, partition_pin to mindful_user, mindful_reader, mindful_admin;
grant execute on function partition_find(text) to mindful_user, mindful_reader, mindful_admin;
