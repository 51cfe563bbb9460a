import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.hive.metastore.MetaStoreThread;

/** Hive's own compactor threads, a cycle at a time, as Hive's tests run them (CompactorTest): told to stop before they begin. */
public final class Threads {
  private static final Map<String, MetaStoreThread> KEPT = new HashMap<>();
  private static Object configuration;

  private Threads() {}

  /** The metastore starts anew: Hive 3.1's Cleaner forgets which locks it saw. */
  public static synchronized void restart() {
    KEPT.clear();
  }

  /** A cycle of the "Initiator" or "Cleaner"; returns the errors that it logged, for it throws none. */
  public static synchronized String cycle(String name) throws Exception {
    ByteArrayOutputStream said = new ByteArrayOutputStream();
    PrintStream before = System.err;
    System.setErr(new PrintStream(said, true, "UTF-8"));
    try {
      MetaStoreThread thread = KEPT.containsKey(name) ? KEPT.get(name) : begin(name);
      ((Runnable) thread).run();
    } finally {
      System.setErr(before);
    }
    return said.toString("UTF-8");
  }

  /** What `setConf` makes of our settings, made once: it reads Hive's defaults from their jars each time. */
  private static void configure(MetaStoreThread thread) throws Exception {
    Field field = Class.forName("org.apache.hadoop.hive.ql.txn.compactor.CompactorThread").getDeclaredField("conf");
    field.setAccessible(true);
    if (configuration == null) {
      thread.setConf(Party.conf);
      configuration = field.get(thread);
    }
    field.set(thread, configuration);
  }

  private static MetaStoreThread begin(String name) throws Exception {
    MetaStoreThread thread = (MetaStoreThread) Class.forName("org.apache.hadoop.hive.ql.txn.compactor." + name).getDeclaredConstructor().newInstance();
    configure(thread);
    for (Method method : MetaStoreThread.class.getMethods()) {
      if (method.getName().equals("setThreadId")) {  // Hive 3.1; a thread of Hive 4 can't run twice, and remembers nothing
        method.invoke(thread, 1);
        KEPT.put(name, thread);
      } else if (method.getName().equals("init")) {
        Object[] flags = new Object[method.getParameterCount()];
        Arrays.setAll(flags, number -> new AtomicBoolean(true));
        method.invoke(thread, flags);
      }
    }
    return thread;
  }
}
