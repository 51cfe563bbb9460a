"""Leadership, membership and control state in a table of the metastore's database."""
