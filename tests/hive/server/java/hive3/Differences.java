import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.MetaStoreThread;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.processors.CommandProcessorResponse;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.apache.hadoop.hive.ql.txn.compactor.Cleaner;
import org.apache.hadoop.hive.ql.txn.compactor.Initiator;
import org.apache.hadoop.hive.ql.txn.compactor.Worker;

/** What is asked of Hive 3.1 in another way than of 4.0. */
final class Differences {
  private Differences() {}

  /** Run a statement to its end and then roll its transaction back: its files stay. */
  static String rollBack(HiveConf conf, String sql) throws Exception {
    conf.setBoolVar(HiveConf.ConfVars.HIVE_IN_TEST, true);
    conf.setBoolVar(HiveConf.ConfVars.HIVETESTMODEROLLBACKTXN, true);
    SessionState.start(conf);
    try (Driver driver = new Driver(conf)) {
      CommandProcessorResponse said = driver.run(sql);
      if (said.getResponseCode() != 0) {
        throw new IllegalStateException(said.getErrorMessage());
      }
      return String.valueOf(said);
    } finally {
      SessionState.get().close();
    }
  }

  static Thread compactor(HiveConf conf, String name, AtomicBoolean stop) throws Exception {
    MetaStoreThread thread = name.equals("initiator") ? new Initiator() : name.equals("worker") ? new Worker() : new Cleaner();
    thread.setConf(conf);
    thread.setThreadId(name.hashCode());
    thread.init(stop, new AtomicBoolean());
    return (Thread) (Object) thread;
  }

  /** One cycle of a compactor thread. */
  static void cycle(HiveConf conf, String name) throws Exception {
    compactor(new HiveConf(conf), name, new AtomicBoolean(true)).run();
  }
}
