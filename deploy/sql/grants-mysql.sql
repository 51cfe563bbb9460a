-- The least rights that the daemon needs on a Hive metastore in MySQL or MariaDB (schema 3.1 or 4.x). This script reads
-- which of Hive's tables there are, and prints the statements; the second client executes them. Run it as a user who
-- may grant rights, once, and again after an upgrade of Hive or of the daemon:
--
--   mysql -e "CREATE USER 'compactor'@'%' IDENTIFIED BY '…'"
--   mysql -rN metastore < deploy/sql/grants-mysql.sql | mysql metastore
--
-- For another account than 'compactor'@'%' add this option to the first client:
--   --init-command="SET @account = '''daemon''@''10.1.%'''"
--
-- MySQL 8.0.12 was seen to refuse SELECT … FOR UPDATE to a user who has SELECT and UPDATE on the table (error 1143); what
-- helps there is: GRANT LOCK TABLES ON metastore.* TO 'compactor'@'%'
--
-- The daemon reads the catalog and never writes it. It writes the tables of transactions, locks and compactions, as
-- Hive's own compactor does. SELECT … FOR UPDATE needs the right UPDATE.
-- tests/deploy/test_grants_mysql.py runs the daemon as a user with exactly these rights, and checks that no right to
-- write is superfluous.

SET @hive = (
  SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND UPPER(TABLE_NAME) = 'TXNS'
);
SET @generation = (
  SELECT IF(COUNT(*) > 0, 4, 3) FROM information_schema.TABLES
  WHERE TABLE_SCHEMA = DATABASE() AND UPPER(TABLE_NAME) = 'TXN_LOCK_TBL'
);
SET @elsewhere = (
  SELECT GROUP_CONCAT(DISTINCT TABLE_SCHEMA SEPARATOR ', ') FROM information_schema.TABLES
  WHERE UPPER(TABLE_NAME) = 'TXNS'
);

SELECT CONCAT(
  'SIGNAL SQLSTATE ''45000'' SET MESSAGE_TEXT = ''there is no table TXNS of Hive in database ',
  IFNULL(DATABASE(), '(none)'), ': nothing was granted. ',
  IFNULL(CONCAT('One is in ', @elsewhere), 'Connect to the database of the metastore'), ''';'
)
FROM DUAL WHERE @hive = 0;

-- The daemon's own tables. The script creates them, so that the user needs no right to create tables. Without ZooKeeper
-- the first holds the members and the control state; the second holds what compactions predicted and achieved.
SELECT CONCAT(
  'CREATE TABLE IF NOT EXISTS `COMPACTOR_STATE` (',
  '`CS_KEY` varchar(255) NOT NULL PRIMARY KEY, `CS_VALUE` longtext NOT NULL, ',
  '`CS_VERSION` bigint NOT NULL, `CS_UPDATED` bigint NOT NULL',
  ') ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;'
)
FROM DUAL WHERE @hive > 0;
SELECT CONCAT(
  'CREATE TABLE IF NOT EXISTS `COMPACTOR_WORK` (',
  '`CW_ID` bigint NOT NULL PRIMARY KEY, `CW_START` bigint NOT NULL, ',
  '`CW_VALUE` longtext NOT NULL, `CW_UPDATED` bigint NOT NULL',
  ') ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;'
)
FROM DUAL WHERE @hive > 0;

SET @account = IFNULL(@account, '''compactor''@''%''');
SELECT CONCAT('GRANT ', wanted.rights, ' ON `', DATABASE(), '`.`', found.TABLE_NAME, '` TO ', @account, ';')
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
JOIN information_schema.TABLES found ON found.TABLE_SCHEMA = DATABASE() AND UPPER(found.TABLE_NAME) = wanted.relation
WHERE @hive > 0 AND IFNULL(wanted.hive, @generation) = @generation
ORDER BY wanted.relation;

-- the daemon's own tables
SELECT CONCAT('GRANT SELECT, INSERT, UPDATE, DELETE ON `', DATABASE(), '`.`', own.relation, '` TO ', @account, ';')
FROM (SELECT 'COMPACTOR_STATE' AS relation UNION ALL SELECT 'COMPACTOR_WORK') own
WHERE @hive > 0;
