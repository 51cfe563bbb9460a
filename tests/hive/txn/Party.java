import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.common.ValidTxnList;
import org.apache.hadoop.hive.common.ValidWriteIdList;
import org.apache.hadoop.hive.metastore.api.GetOpenTxnsResponse;
import org.apache.hadoop.hive.metastore.api.GetValidWriteIdsRequest;
import org.apache.hadoop.hive.metastore.api.TableValidWriteIds;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnStore;
import org.apache.hadoop.hive.metastore.txn.TxnUtils;

/**
 * Hive's own TxnHandler on a metastore database: the real second party of tests.
 *
 * Arguments: the address of the database, then settings as name=value. Each line of standard input is a request, a JSON object:
 *   id, session (a thread of that name, made when first named), call (see below), args, gated (true: stop before each statement to the database);
 *   or release: the session of that name goes on to its next statement; with "all": it isn't stopped again during this call.
 * Each line of standard output is an answer: id and result; id, error (class), message and trace; or id and at (the statement a gated call stands before).
 *
 * Calls: a method of TxnStore by name; a static method as "package.Class.method"; "mutex.acquire" KEY, "mutex.release" KEY; "configure" NAME VALUE;
 * "all" CALL... (several without arguments); "snapshot" TABLES TRANSACTION (what a statement of that transaction is given: its list of transactions, and the write ids of each of the tables).
 * The same source compiles against Hive 3.1 and 4.
 */
public final class Party {
  private static final Map<String, Session> SESSIONS = new HashMap<>();
  private static PrintStream out;
  static Configuration conf;
  private static TxnStore store;

  private static final Class<?> LISTS = lists();

  private Party() {}

  public static void main(String[] args) throws Exception {
    out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
    System.setOut(System.err);  // what Hive prints must not get among the answers
    conf = MetastoreConf.newMetastoreConf();
    MetastoreConf.setVar(conf, MetastoreConf.ConfVars.CONNECTION_DRIVER, "Gate");
    Class.forName("Gate");
    for (int i = 1; i < args.length; i++) {
      String[] setting = args[i].split("=", 2);
      conf.set(setting[0], setting[1]);
    }
    conf.set(MetastoreConf.ConfVars.CONNECT_URL_KEY.getVarname(), args[0]);
    store = TxnUtils.getTxnStore(conf);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    say(new JsonObject());  // ready
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonObject request = JsonParser.parseString(line).getAsJsonObject();
      if (request.has("release")) {
        session(request.get("release").getAsString()).release(request.has("all"));
      } else {
        session(request.get("session").getAsString()).requests.add(request);
      }
    }
    System.exit(0);  // Hive leaves threads behind
  }

  private static Class<?> lists() {
    String place = "org.apache.hadoop.hive.metastore.txn.";
    try {
      return Class.forName(place + "TxnCommonUtils");
    } catch (ClassNotFoundException hive3) {
      return TxnUtils.class;
    }
  }

  private static List<String> snapshot(JsonArray tables, long txn) throws Exception {
    List<String> names = new ArrayList<>();
    tables.forEach(name -> names.add(name.getAsString()));
    ValidTxnList txns = (ValidTxnList) LISTS.getMethod("createValidReadTxnList", GetOpenTxnsResponse.class, long.class)
        .invoke(null, store.getOpenTxns(), txn);
    String text = txns.writeToString();
    Map<String, String> lists = new HashMap<>();
    if (!names.isEmpty()) {
      GetValidWriteIdsRequest request = new GetValidWriteIdsRequest();
      request.setFullTableNames(names);
      request.setValidTxnList(text);
      for (TableValidWriteIds table : store.getValidWriteIds(request).getTblValidWriteIds()) {
        ValidWriteIdList writeIds = (ValidWriteIdList) LISTS.getMethod("createValidReaderWriteIdList", TableValidWriteIds.class).invoke(null, table);
        lists.put(table.getFullTableName(), writeIds.writeToString());
      }
    }
    List<String> answer = new ArrayList<>(List.of(text));
    names.forEach(name -> answer.add(lists.get(name)));
    return answer;
  }

  private static Session session(String name) {
    return SESSIONS.computeIfAbsent(name, key -> {
      Session made = new Session();
      Thread thread = new Thread(made, key);
      thread.setDaemon(true);
      thread.start();
      return made;
    });
  }

  static JsonObject error(Throwable error) {
    StringWriter trace = new StringWriter();
    error.printStackTrace(new PrintWriter(trace));
    JsonObject about = new JsonObject();
    about.addProperty("error", error.getClass().getSimpleName());
    about.addProperty("message", error.getMessage());
    about.addProperty("trace", trace.toString());
    return about;
  }

  private static void say(JsonObject answer) {
    synchronized (out) {
      out.println(answer);
      out.flush();
    }
  }

  /** One client of Hive's: does its requests one after the other. */
  private static final class Session implements Runnable {
    private final LinkedBlockingQueue<JsonObject> requests = new LinkedBlockingQueue<>();
    private final Semaphore permits = new Semaphore(0);
    private final Map<String, TxnStore.MutexAPI.LockHandle> mutexes = new HashMap<>();
    private volatile boolean freed;

    void release(boolean all) {
      freed = freed || all;
      permits.release();
    }

    @Override
    public void run() {
      while (true) {
        JsonObject request;
        try {
          request = requests.take();
        } catch (InterruptedException end) {
          return;
        }
        JsonElement id = request.get("id");
        JsonObject answer = new JsonObject();
        answer.add("id", id);
        if (request.has("gated") && request.get("gated").getAsBoolean()) {
          permits.drainPermits();
          freed = false;
          Gate.STOP.set(statement -> stand(id, statement));
        }
        try {
          answer.add("result", Json.of(perform(request.get("call").getAsString(), request.getAsJsonArray("args"))));
        } catch (Throwable error) {
          error(error).entrySet().forEach(about -> answer.add(about.getKey(), about.getValue()));
        } finally {
          Gate.STOP.remove();
        }
        say(answer);
      }
    }

    private void stand(JsonElement id, String statement) {
      if (freed) {
        return;
      }
      JsonObject at = new JsonObject();
      at.add("id", id);
      at.addProperty("at", statement);
      say(at);
      permits.acquireUninterruptibly();
    }

    private Object perform(String call, JsonArray args) throws Throwable {
      int dot = call.lastIndexOf('.');
      switch (call) {
        case "mutex.acquire":
          mutexes.put(args.get(0).getAsString(), store.getMutexAPI().acquireLock(args.get(0).getAsString()));
          return null;
        case "mutex.release":
          mutexes.remove(args.get(0).getAsString()).releaseLocks();
          return null;
        case "configure":
          conf.set(args.get(0).getAsString(), args.get(1).getAsString());
          store.setConf(conf);
          return null;
        case "all":
          List<Object> results = new ArrayList<>();
          for (JsonElement each : args) {
            results.add(perform(each.getAsString(), new JsonArray()));
          }
          return results;
        case "snapshot":
          return snapshot(args.get(0).getAsJsonArray(), args.get(1).getAsLong());
        default:
          return dot < 0
              ? Json.call(TxnStore.class, store, call, args)
              : Json.call(Class.forName(call.substring(0, dot)), null, call.substring(dot + 1), args);
      }
    }
  }
}
