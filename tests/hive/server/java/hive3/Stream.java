import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hive.streaming.HiveStreamingConnection;
import org.apache.hive.streaming.StrictDelimitedInputWriter;

/**
 * Writes by Hive's streaming API: database, table, then the values of a partition. Lines of its input: `begin`, `row` and a line of fields between `|`, `commit`, `abort`, `die`. All
 * transactions are of one batch. `die` leaves them open, the one that was begun among them.
 */
public class Stream {
  public static void main(String[] args) throws Exception {
    List<String> lines = new ArrayList<>();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      lines.add(line);
    }
    HiveStreamingConnection.Builder builder = HiveStreamingConnection.newBuilder().withDatabase(args[0]).withTable(args[1]).withAgentInfo("streaming")
        .withTransactionBatchSize((int) lines.stream().filter("begin"::equals).count())
        .withRecordWriter(StrictDelimitedInputWriter.newBuilder().withFieldDelimiter('|').build()).withHiveConf(new HiveConf());
    if (args.length > 2) {
      builder = builder.withStaticPartitionValues(Arrays.asList(args).subList(2, args.length));
    }
    HiveStreamingConnection connection = builder.connect();
    for (String line : lines) {
      switch (line) {
        case "begin":
          connection.beginTransaction();
          break;
        case "commit":
          connection.commitTransaction();
          break;
        case "abort":
          connection.abortTransaction();
          break;
        case "die":
          Runtime.getRuntime().halt(9);
          break;
        default:
          connection.write(line.substring("row ".length()).getBytes(StandardCharsets.UTF_8));
      }
    }
    connection.close();
    System.exit(0);
  }
}
