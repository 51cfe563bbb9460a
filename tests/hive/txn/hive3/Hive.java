package org.apache.hadoop.hive.ql.metadata;

import org.apache.hadoop.hive.metastore.api.Database;

/** In place of Hive 3.1's, which needs all of its compiler: what the Cleaner asks of it, whether a database is a source of replication. None is. */
public final class Hive {
  private Hive() {}

  public static Hive get() {
    return new Hive();
  }

  public Database getDatabase(String name) {
    return new Database();
  }
}
