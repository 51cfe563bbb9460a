-- The least rights that the daemon needs on a Hive metastore in SQL Server (schema 3.1 or 4.x).
--
-- NOT RUN: no server of this product was at hand. A parser read the statements, and their list is that of the other
-- products (tests/dialects/test_statements.py). Read what the first client prints before the second executes it.
--
-- This script reads which of Hive's tables there are, and prints the statements. Run it as a user who may grant rights,
-- once, and again after an upgrade of Hive or of the daemon; the user exists in the database (CREATE USER compactor FOR
-- LOGIN compactor), and its default schema is that of Hive's tables:
--
--   sqlcmd -S DB -d metastore -h -1 -W -v account=compactor -i deploy/dialects/sql/grants-sqlserver.sql > grants.sql
--   sqlcmd -S DB -d metastore -i grants.sql
--
-- The daemon refuses a database that doesn't read by row versions. It is switched on, while nobody is connected, by
--   ALTER DATABASE metastore SET READ_COMMITTED_SNAPSHOT ON
--
-- The daemon reads the catalog and never writes it. It writes the tables of transactions, locks and compactions, as
-- Hive's own compactor does.
SET NOCOUNT ON;

SELECT 'RAISERROR (''there is no table TXNS of Hive in this database: nothing was granted'', 16, 1);'
WHERE OBJECT_ID('TXNS') IS NULL;

-- The daemon's own tables. The script creates them, so that the user needs no right to create tables. Without ZooKeeper
-- the first holds the members and the control state; the second holds what compactions predicted and achieved.
SELECT 'CREATE TABLE [COMPACTOR_STATE] ('
  + '[CS_KEY] NVARCHAR(255) COLLATE Latin1_General_100_BIN2 NOT NULL, '
  + '[CS_VALUE] NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NOT NULL, '
  + '[CS_VERSION] BIGINT NOT NULL, [CS_UPDATED] BIGINT NOT NULL, PRIMARY KEY ([CS_KEY]));'
WHERE OBJECT_ID('TXNS') IS NOT NULL AND OBJECT_ID('COMPACTOR_STATE') IS NULL;
SELECT 'CREATE TABLE [COMPACTOR_WORK] ('
  + '[CW_ID] BIGINT NOT NULL, [CW_START] BIGINT NOT NULL, '
  + '[CW_VALUE] NVARCHAR(max) COLLATE Latin1_General_100_BIN2 NOT NULL, '
  + '[CW_UPDATED] BIGINT NOT NULL, PRIMARY KEY ([CW_ID]));'
WHERE OBJECT_ID('TXNS') IS NOT NULL AND OBJECT_ID('COMPACTOR_WORK') IS NULL;

SELECT 'GRANT ' + wanted.rights + ' ON [' + wanted.relation + '] TO [$(account)];'
FROM (
  -- the catalog
  SELECT 'BUCKETING_COLS' AS relation, 'SELECT' AS rights, NULL AS hive
  UNION ALL SELECT 'CDS', 'SELECT', NULL
  UNION ALL SELECT 'COLUMNS_V2', 'SELECT', NULL
  UNION ALL SELECT 'CTLGS', 'SELECT', NULL
  UNION ALL SELECT 'DATABASE_PARAMS', 'SELECT', NULL
  UNION ALL SELECT 'DBS', 'SELECT', NULL
  UNION ALL SELECT 'MV_TABLES_USED', 'SELECT', 3
  UNION ALL SELECT 'PARTITIONS', 'SELECT', NULL
  UNION ALL SELECT 'PARTITION_KEYS', 'SELECT', NULL
  UNION ALL SELECT 'PARTITION_KEY_VALS', 'SELECT', NULL
  UNION ALL SELECT 'PARTITION_PARAMS', 'SELECT', NULL
  UNION ALL SELECT 'SDS', 'SELECT', NULL
  UNION ALL SELECT 'SERDES', 'SELECT', NULL
  UNION ALL SELECT 'SERDE_PARAMS', 'SELECT', NULL
  UNION ALL SELECT 'SORT_COLS', 'SELECT', NULL
  UNION ALL SELECT 'TABLE_PARAMS', 'SELECT', NULL
  UNION ALL SELECT 'TBLS', 'SELECT', NULL
  UNION ALL SELECT 'VERSION', 'SELECT', NULL
  -- transactions
  UNION ALL SELECT 'TXNS', 'SELECT, UPDATE, DELETE', NULL
  UNION ALL SELECT 'TXNS', 'INSERT', 4
  UNION ALL SELECT 'TXN_COMPONENTS', 'SELECT, INSERT, DELETE', NULL
  UNION ALL SELECT 'COMPLETED_TXN_COMPONENTS', 'SELECT, DELETE', NULL
  UNION ALL SELECT 'TXN_TO_WRITE_ID', 'SELECT, DELETE', NULL
  UNION ALL SELECT 'NEXT_WRITE_ID', 'SELECT', NULL
  UNION ALL SELECT 'NEXT_TXN_ID', 'SELECT', 3
  UNION ALL SELECT 'MIN_HISTORY_LEVEL', 'SELECT, DELETE', NULL
  UNION ALL SELECT 'MIN_HISTORY_LEVEL', 'INSERT', 4
  UNION ALL SELECT 'MIN_HISTORY_WRITE_ID', 'SELECT, INSERT, DELETE', 4
  UNION ALL SELECT 'WRITE_SET', 'SELECT, DELETE', NULL
  UNION ALL SELECT 'TXN_LOCK_TBL', 'SELECT, UPDATE', 4
  -- locks
  UNION ALL SELECT 'HIVE_LOCKS', 'SELECT, INSERT, UPDATE, DELETE', NULL
  UNION ALL SELECT 'NEXT_LOCK_ID', 'SELECT, UPDATE', NULL
  -- compactions
  UNION ALL SELECT 'COMPACTION_QUEUE', 'SELECT, INSERT, UPDATE, DELETE', NULL
  UNION ALL SELECT 'NEXT_COMPACTION_QUEUE_ID', 'SELECT, UPDATE', NULL
  UNION ALL SELECT 'COMPLETED_COMPACTIONS', 'SELECT, INSERT, UPDATE, DELETE', NULL
  -- Hive's mutexes
  UNION ALL SELECT 'AUX_TABLE', 'SELECT, INSERT, UPDATE', NULL
) wanted
WHERE OBJECT_ID(wanted.relation) IS NOT NULL
  AND OBJECT_ID('TXNS') IS NOT NULL
  AND COALESCE(wanted.hive, 0) IN (0, CASE WHEN OBJECT_ID('TXN_LOCK_TBL') IS NULL THEN 3 ELSE 4 END)
ORDER BY wanted.relation;

-- the daemon's own tables
SELECT 'GRANT SELECT, INSERT, UPDATE, DELETE ON [' + own.relation + '] TO [$(account)];'
FROM (SELECT 'COMPACTOR_STATE' AS relation UNION ALL SELECT 'COMPACTOR_WORK') own
WHERE OBJECT_ID('TXNS') IS NOT NULL;
