import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.metastore.ReplChangeManager;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;

/**
 * Hive's own change management on HDFS, for tests: one command a line on standard input, answered by one line.
 *
 * recycle PATH: what Hive's Cleaner does before it deletes; answers the number of files moved.
 * checksum PATH: as Hive's replication notes it in an event.
 * find PATH CHECKSUM: where Hive's replication reads that file now: "source" or "root", and the path.
 * origin PATH: the attribute that says where a recycled file was.
 *
 * The same source runs with Hive 3.1 and 4. Argument: the change-management root.
 */
public final class Recycle {
  public static void main(String[] arguments) throws Exception {
    Configuration conf = MetastoreConf.newMetastoreConf();
    MetastoreConf.setBoolVar(conf, MetastoreConf.ConfVars.REPLCMENABLED, true);
    MetastoreConf.setVar(conf, MetastoreConf.ConfVars.REPLCMDIR, arguments[0]);
    conf.set("hive.repl.cm.nonencryptionzone.rootdir", new Path(new Path(arguments[0]), "/tmp/cmroot").toString());   // Hive 4 wants one where the root is in an encryption zone
    ReplChangeManager manager = ReplChangeManager.getInstance(conf);
    FileSystem files = new Path(arguments[0]).getFileSystem(conf);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] words = line.split("\t");
      Path path = new Path(words[1]);
      String answer;
      switch (words[0]) {
        case "recycle":
          answer = String.valueOf(manager.recycle(path, ReplChangeManager.RecycleType.MOVE, true));
          break;
        case "checksum":
          answer = ReplChangeManager.checksumFor(path, files);
          break;
        case "find":
          ReplChangeManager.FileInfo found = ReplChangeManager.getFileInfo(path, words[2], arguments[0], null, conf);
          answer = (found.isUseSourcePath() ? "source " : "root ") + found.getEffectivePath();
          break;
        default:
          answer = new String(files.getXAttr(path, "user.original-loc"), StandardCharsets.UTF_8);
      }
      System.out.println("ANSWER " + answer);
    }
  }
}
