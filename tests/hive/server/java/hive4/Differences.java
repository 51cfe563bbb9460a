import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.DriverFactory;
import org.apache.hadoop.hive.ql.IDriver;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.apache.hadoop.hive.ql.txn.compactor.Cleaner;
import org.apache.hadoop.hive.ql.txn.compactor.CompactorThread;
import org.apache.hadoop.hive.ql.txn.compactor.Initiator;
import org.apache.hadoop.hive.ql.txn.compactor.Worker;

/** What is asked of Hive 4.0 in another way than of 3.1. */
final class Differences {
  private Differences() {}

  /** Run a statement to its end and then roll its transaction back: its files stay. */
  static String rollBack(HiveConf conf, String sql) throws Exception {
    conf.setBoolVar(HiveConf.ConfVars.HIVE_IN_TEST, true);
    conf.setBoolVar(HiveConf.ConfVars.HIVE_TEST_MODE_ROLLBACK_TXN, true);
    SessionState.start(conf);
    try (IDriver driver = DriverFactory.newDriver(conf)) {
      return String.valueOf(driver.run(sql));
    } finally {
      SessionState.get().close();
    }
  }

  static Thread compactor(HiveConf conf, String name, AtomicBoolean stop) throws Exception {
    CompactorThread thread = name.equals("initiator") ? new Initiator() : name.equals("worker") ? new Worker() : new Cleaner();
    thread.setConf(conf);
    thread.init(stop);
    return thread;
  }

  /** One cycle of a compactor thread. */
  static void cycle(HiveConf conf, String name) throws Exception {
    compactor(new HiveConf(conf), name, new AtomicBoolean(true)).run();
  }
}
