revoke all on schema mindful_route from public;
revoke execute on all routines in schema mindful_route from public;
grant usage on schema mindful_route to mindful_user, mindful_reader, mindful_admin;
grant select on served, gate to mindful_user, mindful_reader, mindful_admin;
grant execute on all routines in schema mindful_route to mindful_user, mindful_reader, mindful_admin;
