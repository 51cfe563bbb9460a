import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.HiveMetaStoreClient;
import org.apache.hadoop.hive.metastore.api.DataOperationType;
import org.apache.hadoop.hive.metastore.api.LockComponent;
import org.apache.hadoop.hive.metastore.api.LockLevel;
import org.apache.hadoop.hive.metastore.api.LockRequest;
import org.apache.hadoop.hive.metastore.api.LockType;
import org.apache.hive.service.server.HiveServer2;

/**
 * Metastore (at port 0: that of the configuration, in another JVM) and HiveServer2 in one JVM, told what to do by lines of JSON: {"id": …, "do": …, "session": …, …}; an answer carries the id, and either "error" or what was asked for.
 * Commands of one session run one after the other, those of different sessions at the same time. The JVM ends when its input does.
 */
public class Server {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, ExecutorService> SESSIONS = new ConcurrentHashMap<>();
  private static final Map<String, Connection> CONNECTIONS = new ConcurrentHashMap<>();
  private static PrintStream answers;
  private static HiveConf conf;
  private static String url;

  public static void main(String[] args) throws Exception {
    answers = new PrintStream(System.out, true, "UTF-8");
    System.setOut(System.err);
    int metastore = Integer.parseInt(args[0]);
    int server = Integer.parseInt(args[1]);
    Thread.setDefaultUncaughtExceptionHandler((thread, error) -> error.printStackTrace());
    conf = new HiveConf();
    if (metastore > 0) {
      start("metastore", () -> HiveMetaStore.main(new String[] {"-p", String.valueOf(metastore)}));
      await(metastore);
    }
    HiveServer2 two = new HiveServer2();
    HiveConf own = new HiveConf();
    own.setIntVar(HiveConf.ConfVars.HIVE_SERVER2_THRIFT_PORT, server);
    two.init(own);
    two.start();
    await(server);
    url = "jdbc:hive2://127.0.0.1:" + server + "/default;auth=noSasl";
    Class.forName("org.apache.hive.jdbc.HiveDriver");
    answer(Map.of("id", 0));
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      JsonNode command = JSON.readTree(line);
      String session = command.path("session").asText("");
      if (session.isEmpty()) {
        run(command);
      } else {
        SESSIONS.computeIfAbsent(session, name -> Executors.newSingleThreadExecutor(Server::daemon)).submit(() -> run(command));
      }
    }
    System.exit(0);
  }

  private static Thread daemon(Runnable body) {
    Thread thread = new Thread(body);
    thread.setDaemon(true);
    return thread;
  }

  private interface Body {
    void run() throws Throwable;
  }

  private static void start(String name, Body body) {
    Thread thread = daemon(() -> {
      try {
        body.run();
      } catch (Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
      }
    });
    thread.setName(name);
    thread.start();
  }

  private static void await(int port) throws InterruptedException {
    while (true) {
      try (Socket socket = new Socket("127.0.0.1", port)) {
        return;
      } catch (java.io.IOException refused) {
        Thread.sleep(50);
      }
    }
  }

  private static void run(JsonNode command) {
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("id", command.get("id").asLong());
    try {
      handle(command, answer);
    } catch (Throwable error) {
      StringBuilder said = new StringBuilder();
      for (Throwable one = error; one != null && said.length() < 4000; one = one.getCause()) {
        said.append(said.length() > 0 ? " <- " : "").append(one.getClass().getSimpleName()).append(": ").append(one.getMessage());
      }
      answer.put("error", said.toString());
    }
    answer(answer);
  }

  private static void answer(Map<String, ?> what) {
    try {
      String line = JSON.writeValueAsString(what);
      synchronized (answers) {
        answers.println(line);
      }
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  private static void handle(JsonNode command, Map<String, Object> answer) throws Exception {
    String[] table = command.path("table").asText("").split("\\.");
    switch (command.get("do").asText()) {
      case "sql":
        sql(command.get("session").asText(), command.get("sql").asText(), answer);
        break;
      case "roll-back":
        answer.put("said", Differences.rollBack(told(command), command.get("sql").asText()));
        break;
      case "cycle":
        Differences.cycle(told(command), command.get("thread").asText());
        break;
      case "threads":
        List<String> wanted = new ArrayList<>();
        command.get("on").forEach(one -> wanted.add(one.asText()));
        Threads.set(conf, wanted);
        break;
      case "hold":
        Holds.set(command.get("name").asText(), command.get("on").asText(), command.get("path").asText(), command.path("times").asInt(1), command.path("fails").asBoolean());
        break;
      case "held":
        answer.put("met", Holds.met(command.get("name").asText(), command.path("millis").asLong()));
        break;
      case "release":
        Holds.release(command.get("name").asText());
        break;
      default:
        HiveMetaStoreClient client = new HiveMetaStoreClient(conf);
        try {
          transaction(client, command, table, answer);
        } finally {
          client.close();
        }
    }
  }

  /** The configuration, with a command's own settings. */
  private static HiveConf told(JsonNode command) {
    HiveConf own = new HiveConf(conf);
    command.path("settings").fields().forEachRemaining(one -> own.set(one.getKey(), one.getValue().asText()));
    return own;
  }

  private static void transaction(HiveMetaStoreClient client, JsonNode command, String[] table, Map<String, Object> answer) throws Exception {
    switch (command.get("do").asText()) {
      case "open":
        answer.put("txn", client.openTxn(command.path("user").asText("hive")));
        break;
      case "write":
        long txn = command.get("txn").asLong();
        answer.put("write_id", client.allocateTableWriteId(txn, table[0], table[1]));
        LockComponent part = new LockComponent(LockType.SHARED_READ, LockLevel.TABLE, table[0]);
        part.setTablename(table[1]);
        part.setOperationType(DataOperationType.INSERT);
        part.setIsTransactional(true);
        LockRequest request = new LockRequest(new ArrayList<>(List.of(part)), "hive", "localhost");
        request.setTxnid(txn);
        request.setAgentInfo("test");
        answer.put("lock", client.lock(request).getState().name());
        break;
      case "commit":
        client.commitTxn(command.get("txn").asLong());
        break;
      case "abort":
        client.rollbackTxn(command.get("txn").asLong());
        break;
      case "heartbeat":
        client.heartbeat(command.get("txn").asLong(), 0);
        break;
      default:
        throw new IllegalArgumentException("unknown: " + command);
    }
  }

  private static void sql(String session, String text, Map<String, Object> answer) throws Exception {
    Connection connection = CONNECTIONS.get(session);
    if (connection == null) {
      connection = DriverManager.getConnection(url, "hive", "");
      CONNECTIONS.put(session, connection);
    }
    try (Statement statement = connection.createStatement()) {
      if (!statement.execute(text)) {
        return;
      }
      try (ResultSet found = statement.getResultSet()) {
        int width = found.getMetaData().getColumnCount();
        List<String> columns = new ArrayList<>();
        for (int i = 1; i <= width; i++) {
          columns.add(found.getMetaData().getColumnLabel(i));
        }
        List<List<String>> rows = new ArrayList<>();
        while (found.next()) {
          List<String> row = new ArrayList<>();
          for (int i = 1; i <= width; i++) {
            Object value = found.getObject(i);
            row.add(value == null ? null : value instanceof byte[] ? java.util.HexFormat.of().formatHex((byte[]) value) : value.toString());
          }
          rows.add(row);
        }
        answer.put("columns", columns);
        answer.put("rows", rows);
      }
    }
  }
}
