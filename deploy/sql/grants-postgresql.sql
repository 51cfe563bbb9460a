-- The least rights that the daemon needs on a Hive metastore in PostgreSQL (schema 3.1 or 4.x). Run this script as the
-- tables' owner, once, and again after an upgrade of Hive or of the daemon:
--
--   createuser compactor --pwprompt
--   psql -v role=compactor -f deploy/sql/grants-postgresql.sql metastore
--
-- When Hive's tables are in another schema than the first one of this user's search_path, give its name
-- by -v schema=hive. docs/metastore.md says how the daemon finds the tables then.
--
-- The daemon reads the catalog and never writes it. It writes the tables of transactions, locks and compactions, as
-- Hive's own compactor does. SELECT … FOR UPDATE needs the right UPDATE.
-- tests/deploy/test_grants.py runs the daemon as a user with exactly these rights, and checks that no right to write is
-- superfluous.
\set ON_ERROR_STOP on
BEGIN;

\if :{?schema}
SET LOCAL search_path TO :"schema";
\endif

DO $$
DECLARE
  elsewhere text;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(current_schema())) AND upper(relname) = 'TXNS' AND relkind IN ('r', 'p')) THEN
    SELECT string_agg(DISTINCT n.nspname, ', ') INTO elsewhere
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE upper(c.relname) = 'TXNS' AND c.relkind IN ('r', 'p');
    RAISE EXCEPTION 'there is no table TXNS of Hive''s in database %, schema %: nothing was granted', current_database(), coalesce(current_schema(), '(none)')
      USING HINT = coalesce('One is in schema ' || elsewhere || ': give that by -v schema=…', 'Connect to the database of the metastore.');
  END IF;
END
$$;

SELECT format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), :'role') \gexec

-- The daemon's own tables. The script creates them, so that the role needs no right to create tables. Without ZooKeeper
-- the first holds the members and the control state; the second holds what compactions predicted and achieved.
CREATE TABLE IF NOT EXISTS "COMPACTOR_STATE" (
  "CS_KEY" varchar(255) PRIMARY KEY,
  "CS_VALUE" text NOT NULL,
  "CS_VERSION" bigint NOT NULL,
  "CS_UPDATED" bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS "COMPACTOR_WORK" (
  "CW_ID" bigint PRIMARY KEY,
  "CW_START" bigint NOT NULL,
  "CW_VALUE" text NOT NULL,
  "CW_UPDATED" bigint NOT NULL
);

WITH wanted (relation, rights, hive) AS (VALUES
  -- the catalog
  ('BUCKETING_COLS', 'SELECT', NULL),
  ('CDS', 'SELECT', NULL),
  ('COLUMNS_V2', 'SELECT', NULL),
  ('CTLGS', 'SELECT', NULL),
  ('DATABASE_PARAMS', 'SELECT', NULL),
  ('DBS', 'SELECT', NULL),
  ('MV_TABLES_USED', 'SELECT', 3),
  ('PARTITIONS', 'SELECT', NULL),
  ('PARTITION_KEYS', 'SELECT', NULL),
  ('PARTITION_KEY_VALS', 'SELECT', NULL),
  ('PARTITION_PARAMS', 'SELECT', NULL),
  ('SDS', 'SELECT', NULL),
  ('SERDES', 'SELECT', NULL),
  ('SERDE_PARAMS', 'SELECT', NULL),
  ('SORT_COLS', 'SELECT', NULL),
  ('TABLE_PARAMS', 'SELECT', NULL),
  ('TBLS', 'SELECT', NULL),
  ('VERSION', 'SELECT', NULL),
  -- transactions
  ('TXNS', 'SELECT, UPDATE, DELETE', NULL),
  ('TXNS', 'INSERT', 4),
  ('TXN_COMPONENTS', 'SELECT, INSERT, DELETE', NULL),
  ('COMPLETED_TXN_COMPONENTS', 'SELECT, DELETE', NULL),
  ('TXN_TO_WRITE_ID', 'SELECT, DELETE', NULL),
  ('NEXT_WRITE_ID', 'SELECT', NULL),
  ('NEXT_TXN_ID', 'SELECT', 3),
  ('MIN_HISTORY_LEVEL', 'SELECT, DELETE', NULL),
  ('MIN_HISTORY_LEVEL', 'INSERT', 4),
  ('MIN_HISTORY_WRITE_ID', 'SELECT, INSERT, DELETE', 4),
  ('WRITE_SET', 'SELECT, DELETE', NULL),
  ('TXN_LOCK_TBL', 'SELECT, UPDATE', 4),
  -- locks
  ('HIVE_LOCKS', 'SELECT, INSERT, UPDATE, DELETE', NULL),
  ('NEXT_LOCK_ID', 'SELECT, UPDATE', NULL),
  -- compactions
  ('COMPACTION_QUEUE', 'SELECT, INSERT, UPDATE, DELETE', NULL),
  ('NEXT_COMPACTION_QUEUE_ID', 'SELECT, UPDATE', NULL),
  ('COMPLETED_COMPACTIONS', 'SELECT, INSERT, UPDATE, DELETE', NULL),
  -- Hive's mutexes
  ('AUX_TABLE', 'SELECT, INSERT, UPDATE', NULL),
  -- the daemon's own tables
  ('COMPACTOR_STATE', 'SELECT, INSERT, UPDATE, DELETE', NULL),
  ('COMPACTOR_WORK', 'SELECT, INSERT, UPDATE, DELETE', NULL)
),
found AS (
  SELECT c.oid, upper(c.relname) AS relation
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')
),
generation AS (SELECT CASE WHEN EXISTS (SELECT FROM found WHERE relation = 'TXN_LOCK_TBL') THEN 4 ELSE 3 END AS hive)
SELECT format('GRANT %s ON %s TO %I', wanted.rights, found.oid::regclass, :'role')
FROM wanted JOIN found USING (relation) JOIN generation ON generation.hive = coalesce(wanted.hive, generation.hive)
ORDER BY wanted.relation
\gexec

-- The sequence that gives a new transaction its id (4.x).
SELECT format('GRANT USAGE ON SEQUENCE %s TO %I', pg_get_serial_sequence(quote_ident(current_schema()) || '."TXNS"', 'TXN_ID'), :'role')
WHERE to_regclass('"TXNS"') IS NOT NULL AND pg_get_serial_sequence(quote_ident(current_schema()) || '."TXNS"', 'TXN_ID') IS NOT NULL
\gexec

COMMIT;
