import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.hive.conf.HiveConf;

/** Hive's own Initiator, Worker and Cleaner, which start and end while the server runs. */
final class Threads {
  private static final Map<String, Thread> RUNNING = new LinkedHashMap<>();
  private static final Map<String, AtomicBoolean> STOPS = new LinkedHashMap<>();

  private Threads() {}

  static synchronized void set(HiveConf conf, List<String> wanted) throws Exception {
    for (String name : List.copyOf(RUNNING.keySet())) {
      if (!wanted.contains(name)) {
        STOPS.remove(name).set(true);
        Thread thread = RUNNING.remove(name);
        thread.interrupt();
        thread.join(60_000);
      }
    }
    for (String name : wanted) {
      if (!RUNNING.containsKey(name)) {
        AtomicBoolean stop = new AtomicBoolean();
        Thread thread = Differences.compactor(new HiveConf(conf), name, stop);
        thread.setContextClassLoader(Threads.class.getClassLoader()); // not that of a session, which ends
        STOPS.put(name, stop);
        RUNNING.put(name, thread);
        thread.start();
      }
    }
  }
}
