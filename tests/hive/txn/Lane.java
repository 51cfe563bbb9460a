import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringReader;
import java.io.StringWriter;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.ql.io.AcidOutputFormat;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.ql.io.RecordIdentifier;
import org.apache.hadoop.hive.ql.io.RecordUpdater;
import org.apache.hadoop.hive.ql.io.orc.OrcFile;
import org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat;
import org.apache.hadoop.hive.ql.io.orc.Writer;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorFactory;

/** Hive's own writers and readers of transactional ORC directories, for tables of the columns `id int, v string`. */
public final class Lane {
  private static final String COLUMNS = "struct<id:int,v:string>";
  private static final Map<String, Judge.Listed> LOOKS = new HashMap<>();
  private static final Map<String, RecordUpdater> BATCHES = new HashMap<>();
  private static boolean prepared;

  static {
    try {
      new Path("file:///").getFileSystem(conf());  // kept for all who ask later: what others would get hands out nothing before it is closed
    } catch (IOException error) {
      throw new ExceptionInInitializerError(error);
    }
  }

  private Lane() {}

  /** A row as Hive's writers take it. */
  static final class Row {
    int id;
    String v;
    RecordIdentifier ROW__ID;  // the name by which the writer knows it

    Row(JsonArray row) {
      id = row.get(0).getAsInt();
      v = row.get(1).isJsonNull() ? null : row.get(1).getAsString();
      if (row.size() > 2) {
        ROW__ID = new RecordIdentifier(row.get(2).getAsLong(), row.get(3).getAsInt(), row.get(4).getAsLong());
      }
    }
  }

  /** A row of a table that isn't transactional yet. */
  static final class Plain {
    int id;
    String v;
  }

  private static Configuration conf() {
    Configuration conf = new Configuration(Judge.DEFAULTS);
    conf.set("fs.defaultFS", "file:///");
    conf.set("fs.file.impl", "PlainFiles");
    conf.set("columns", "id,v");
    conf.set("columns.types", "int:string");
    AcidUtils.setAcidOperationalProperties(conf, true, AcidUtils.AcidOperationalProperties.getDefault());
    return conf;
  }

  /**
   * One file of a statement, or of a whole batch of transactions, as a task of Hive's writes it.
   *
   * Fields: directory, base (true: INSERT OVERWRITE), min and max (write ids), statement (-1: none), bucket, inserts [[write id, [id, v]], ...],
   * deletes [[write id, [id, v, ROW__ID ...]], ...].
   */
  public static JsonElement write(JsonObject about) throws Exception {
    RecordUpdater updater = updater(about);
    insert(updater, about);
    for (JsonElement one : about.getAsJsonArray("deletes")) {
      updater.delete(one.getAsJsonArray().get(0).getAsLong(), new Row(one.getAsJsonArray().get(1).getAsJsonArray()));
    }
    updater.close(false);
    return null;
  }

  /** A client of the streaming API writes on, and hands it out to readers. Fields: those of `write`, and name (of the batch). */
  public static synchronized JsonElement stream(JsonObject about) throws Exception {
    String name = about.get("name").getAsString();
    if (!BATCHES.containsKey(name)) {
      BATCHES.put(name, updater(about));
    }
    insert(BATCHES.get(name), about);
    if (about.get("flush").getAsBoolean()) {
      BATCHES.get(name).flush();
    }
    return null;
  }

  /** That client closes its batch, if it has written anything. */
  public static synchronized JsonElement close(String name) throws Exception {
    RecordUpdater updater = BATCHES.remove(name);
    if (updater != null) {
      updater.close(false);
    }
    return null;
  }

  private static void insert(RecordUpdater updater, JsonObject about) throws Exception {
    for (JsonElement one : about.getAsJsonArray("inserts")) {
      updater.insert(one.getAsJsonArray().get(0).getAsLong(), new Row(one.getAsJsonArray().get(1).getAsJsonArray()));
    }
  }

  private static RecordUpdater updater(JsonObject about) throws Exception {
    Configuration conf = conf();
    Properties table = new Properties();
    table.setProperty("columns", "id,v");
    table.setProperty("columns.types", "int:string");
    table.setProperty("transactional", "true");
    table.setProperty("transactional_properties", "default");
    ObjectInspector inspector = ObjectInspectorFactory.getReflectionObjectInspector(Row.class, ObjectInspectorFactory.ObjectInspectorOptions.JAVA);
    Path directory = new Path("file:" + about.get("directory").getAsString());
    AcidOutputFormat.Options options = new AcidOutputFormat.Options(conf)
        .filesystem(directory.getFileSystem(conf)).inspector(inspector).tableProperties(table).recordIdColumn(2).finalDestination(directory)
        .writingBase(about.get("base").getAsBoolean()).minimumWriteId(about.get("min").getAsLong()).maximumWriteId(about.get("max").getAsLong())
        .statementId(about.get("statement").getAsInt()).bucket(about.get("bucket").getAsInt());
    return new OrcOutputFormat().getRecordUpdater(directory, options);
  }

  /** A file without ROW__IDs: of an insert-only table, or of one before it was made transactional. Fields: path, rows [[id, v], ...]. */
  public static JsonElement plain(JsonObject about) throws Exception {
    Configuration conf = conf();
    Path path = new Path("file:" + about.get("path").getAsString());
    ObjectInspector inspector = ObjectInspectorFactory.getReflectionObjectInspector(Plain.class, ObjectInspectorFactory.ObjectInspectorOptions.JAVA);
    Writer writer = OrcFile.createWriter(path, OrcFile.writerOptions(conf).fileSystem(path.getFileSystem(conf)).inspector(inspector));
    for (JsonElement one : about.getAsJsonArray("rows")) {
      Row row = new Row(one.getAsJsonArray());
      Plain plain = new Plain();
      plain.id = row.id;
      plain.v = row.v;
      writer.addRow(plain);
    }
    writer.close();
    return null;
  }

  /**
   * Readers, one after the other, list a directory and read what they found, or only one of the two.
   *
   * Fields of each: name (of what it found), read, done (it reads no more); and if it lists, directory, write_ids, txns (empty for Hive 3.1),
   * insert_only, vector, query (Judge.Query). The answers: [[write id, bucket, row, [id, v]], ...], null where nothing was to be read, or error (class), message and trace.
   */
  public static synchronized JsonElement look(JsonArray readers) throws Exception {
    if (!prepared) {
      Judge.provideKryos();
      prepared = true;
    }
    JsonArray answers = new JsonArray();
    for (JsonElement reader : readers) {
      try {
        answers.add(look(reader.getAsJsonObject()));
      } catch (Exception error) {
        answers.add(Party.error(error));
      }
    }
    return answers;
  }

  private static JsonElement look(JsonObject reader) throws Exception {
    String name = reader.get("name").getAsString();
    if (reader.has("directory")) {
      String writeIds = reader.get("write_ids").getAsString();
      String txns = reader.get("txns").getAsString();
      String directory = "file:" + reader.get("directory").getAsString();
      LOOKS.put(name, reader.get("insert_only").getAsBoolean()
          ? new InsertOnlyLook(writeIds, txns, COLUMNS, directory)
          : new Judge.Look(reader.get("vector").getAsBoolean(), "0", writeIds, txns, COLUMNS, directory, reader.get("query").getAsString()));
    }
    if (!reader.get("read").getAsBoolean()) {
      return JsonNull.INSTANCE;
    }
    StringWriter text = new StringWriter();
    (reader.get("done").getAsBoolean() ? LOOKS.remove(name) : LOOKS.get(name)).read(new PrintWriter(text, true));
    JsonArray rows = new JsonArray();
    BufferedReader lines = new BufferedReader(new StringReader(text.toString()));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      rows.add(JsonParser.parseString(line.substring(1)));
    }
    return rows;
  }
}
