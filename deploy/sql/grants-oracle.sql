-- The least rights that the daemon needs on a Hive metastore in Oracle Database (schema 3.1 or 4.x).
--
-- NOT RUN: no server of this product was at hand. A parser read the statements, and their list is that of the other
-- products (tests/metastore/test_untested_products.py). Read what the first client prints before the second executes it.
--
-- This script reads which of Hive's tables there are, and prints the statements. Run it as the owner of Hive's tables,
-- once, and again after an upgrade of Hive or of the daemon; the account exists and may CREATE SESSION:
--
--   sqlplus -S hive@//DB:1521/SERVICE @deploy/sql/grants-oracle.sql COMPACTOR > grants.sql
--   sqlplus hive@//DB:1521/SERVICE @grants.sql
--
-- The daemon's address then names the owner's schema: oracle://compactor@DB:1521/SERVICE?schema=HIVE
--
-- The daemon reads the catalog and never writes it. It writes the tables of transactions, locks and compactions, as
-- Hive's own compactor does.
SET PAGESIZE 0 LINESIZE 500 TRIMOUT ON FEEDBACK OFF VERIFY OFF HEADING OFF

SELECT 'PROMPT this user owns no table TXNS of Hive: nothing was granted' FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM user_tables WHERE table_name = 'TXNS');

-- The daemon's own tables. Without ZooKeeper the first holds the members and the control state; the second holds what
-- compactions predicted and achieved.
SELECT 'CREATE TABLE "COMPACTOR_STATE" (' ||
  '"CS_KEY" VARCHAR2(255 CHAR) NOT NULL, "CS_VALUE" CLOB NOT NULL, ' ||
  '"CS_VERSION" NUMBER(19) NOT NULL, "CS_UPDATED" NUMBER(19) NOT NULL, PRIMARY KEY ("CS_KEY"));'
FROM DUAL
WHERE EXISTS (SELECT 1 FROM user_tables WHERE table_name = 'TXNS')
  AND NOT EXISTS (SELECT 1 FROM user_tables WHERE table_name = 'COMPACTOR_STATE');
SELECT 'CREATE TABLE "COMPACTOR_WORK" (' ||
  '"CW_ID" NUMBER(19) NOT NULL, "CW_START" NUMBER(19) NOT NULL, ' ||
  '"CW_VALUE" CLOB NOT NULL, "CW_UPDATED" NUMBER(19) NOT NULL, PRIMARY KEY ("CW_ID"));'
FROM DUAL
WHERE EXISTS (SELECT 1 FROM user_tables WHERE table_name = 'TXNS')
  AND NOT EXISTS (SELECT 1 FROM user_tables WHERE table_name = 'COMPACTOR_WORK');

SELECT 'GRANT ' || wanted.rights || ' ON "' || found.table_name || '" TO &1;'
FROM (
  SELECT 'BUCKETING_COLS' AS relation, 'SELECT' AS rights, CAST(NULL AS NUMBER) AS hive FROM DUAL
  UNION ALL SELECT 'CDS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'COLUMNS_V2', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'CTLGS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'DATABASE_PARAMS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'DBS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'PARTITIONS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'PARTITION_KEYS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'PARTITION_KEY_VALS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'PARTITION_PARAMS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'SDS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'SERDES', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'SERDE_PARAMS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'SORT_COLS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'TABLE_PARAMS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'TBLS', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'VERSION', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'TXNS', 'SELECT, UPDATE, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'TXNS', 'INSERT', 4 FROM DUAL
  UNION ALL SELECT 'TXN_COMPONENTS', 'SELECT, INSERT, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'COMPLETED_TXN_COMPONENTS', 'SELECT, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'TXN_TO_WRITE_ID', 'SELECT, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'NEXT_WRITE_ID', 'SELECT', NULL FROM DUAL
  UNION ALL SELECT 'NEXT_TXN_ID', 'SELECT', 3 FROM DUAL
  UNION ALL SELECT 'MIN_HISTORY_LEVEL', 'SELECT, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'MIN_HISTORY_LEVEL', 'INSERT', 4 FROM DUAL
  UNION ALL SELECT 'MIN_HISTORY_WRITE_ID', 'SELECT, INSERT, DELETE', 4 FROM DUAL
  UNION ALL SELECT 'WRITE_SET', 'SELECT, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'TXN_LOCK_TBL', 'SELECT, UPDATE', 4 FROM DUAL
  UNION ALL SELECT 'HIVE_LOCKS', 'SELECT, INSERT, UPDATE, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'NEXT_LOCK_ID', 'SELECT, UPDATE', NULL FROM DUAL
  UNION ALL SELECT 'COMPACTION_QUEUE', 'SELECT, INSERT, UPDATE, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'NEXT_COMPACTION_QUEUE_ID', 'SELECT, UPDATE', NULL FROM DUAL
  UNION ALL SELECT 'COMPLETED_COMPACTIONS', 'SELECT, INSERT, UPDATE, DELETE', NULL FROM DUAL
  UNION ALL SELECT 'AUX_TABLE', 'SELECT, INSERT, UPDATE', NULL FROM DUAL
) wanted
JOIN user_tables found ON found.table_name = wanted.relation
CROSS JOIN (SELECT CASE WHEN COUNT(*) > 0 THEN 4 ELSE 3 END AS hive FROM user_tables WHERE table_name = 'TXN_LOCK_TBL')
  generation
WHERE COALESCE(wanted.hive, generation.hive) = generation.hive
  AND EXISTS (SELECT 1 FROM user_tables WHERE table_name = 'TXNS')
ORDER BY wanted.relation;

-- the daemon's own tables
SELECT 'GRANT SELECT, INSERT, UPDATE, DELETE ON "' || own.relation || '" TO &1;'
FROM (SELECT 'COMPACTOR_STATE' AS relation FROM DUAL UNION ALL SELECT 'COMPACTOR_WORK' FROM DUAL) own
WHERE EXISTS (SELECT 1 FROM user_tables WHERE table_name = 'TXNS');
EXIT
