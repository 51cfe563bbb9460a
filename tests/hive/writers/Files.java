import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Timestamp;
import java.util.Arrays;
import java.util.Random;
import java.util.Scanner;
import java.util.TimeZone;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.ql.exec.vector.BytesColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.ListColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.LongColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.MapColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.StructColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgumentFactory;
import org.apache.orc.CompressionKind;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.orc.RecordReader;
import org.apache.orc.TypeDescription;
import org.apache.orc.Writer;

/**
 * ORC files as programs other than Hive 3 and 4 write them: Java's own library, in the time zone of its JVM.
 *
 * The arguments are a verb and what it needs, and after "--" another one; the same source compiles against every release of the library from 1.2 on.
 *
 * zones DIRECTORY COUNT FROM TO FRACTIONS ZONE...: a file NUMBER/000000_0 for each zone, of COUNT local times between two years.
 * acid FILE ZONE OPERATION ORIGINAL CURRENT FIRST TIME...: a full-ACID file with a row for each local time; row ids count from FIRST.
 * find FILE ACID: how many timestamps the column t of a file has, and how many of them a predicate doesn't find in a full-ACID file.
 * odd DIRECTORY: files with values that Hive itself never writes.
 * rows: for each path on its input the rows of that file, lines that begin with R, then one that begins with D, or with E and an exception; of full-ACID files only what stands in "row".
 */
public final class Files {
  private static final String ACID =
      "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,currentTransaction:bigint,row:struct<id:int,t:timestamp>>";

  private Files() {}

  public static void main(String[] args) throws Exception {
    for (int i = 0, next = 0; i < args.length; i = next + 1) {
      next = i;
      while (next < args.length && !args[next].equals("--")) {
        next++;
      }
      run(Arrays.copyOfRange(args, i, next));
    }
  }

  private static void run(String[] args) throws Exception {
    switch (args[0]) {
      case "zones":
        for (int i = 6; i < args.length; i++) {
          TimeZone.setDefault(TimeZone.getTimeZone(args[i]));
          zone(args[1] + "/" + (i - 6) + "/000000_0", Integer.parseInt(args[2]), Integer.parseInt(args[3]), Integer.parseInt(args[4]),
              Boolean.parseBoolean(args[5]));
        }
        break;
      case "ids":
        System.out.println(String.join("\n", TimeZone.getAvailableIDs()));
        break;
      case "acid":
        TimeZone.setDefault(TimeZone.getTimeZone(args[2]));
        acid(args);
        break;
      case "find":
        find(args[1], args[2]);
        break;
      case "rows":
        rows();
        break;
      case "odd":
        odd(args[1]);
        break;
      default:
        throw new IllegalArgumentException(args[0]);
    }
  }

  private static Writer writer(String file, TypeDescription schema) throws Exception {
    return OrcFile.createWriter(new Path("file://" + file),
        OrcFile.writerOptions(new Configuration()).setSchema(schema).compress(CompressionKind.ZLIB));
  }

  private static void zone(String file, int count, int from, int to, boolean fractions) throws Exception {
    TypeDescription schema = TypeDescription.fromString("struct<id:int,t:timestamp,l:array<timestamp>,s:string>");
    Random random = new Random(2015);
    Writer writer = writer(file, schema);
    VectorizedRowBatch batch = schema.createRowBatch();
    LongColumnVector id = (LongColumnVector) batch.cols[0];
    TimestampColumnVector t = (TimestampColumnVector) batch.cols[1];
    ListColumnVector l = (ListColumnVector) batch.cols[2];
    BytesColumnVector s = (BytesColumnVector) batch.cols[3];
    for (int i = 0; i < count; i++) {
      int row = batch.size++;
      Timestamp time = time(random, i, count, from, to, fractions);
      id.vector[row] = i;
      if (i % 100 == 99) {
        t.noNulls = false;
        t.isNull[row] = true;
      } else {
        t.set(row, time);
      }
      l.offsets[row] = l.childCount;
      l.lengths[row] = i % 3;
      l.childCount += i % 3;
      l.child.ensureSize(l.childCount, true);
      for (int j = 0; j < i % 3; j++) {
        ((TimestampColumnVector) l.child).set((int) l.offsets[row] + j, time);
      }
      s.setVal(row, time.toString().getBytes(StandardCharsets.UTF_8));
      if (batch.size == batch.getMaxSize()) {
        writer.addRowBatch(batch);
        batch.reset();
      }
    }
    writer.addRowBatch(batch);
    writer.close();
  }

  /** Half of the times between 1840 and 2100, where zones have rules of their own, as far as the years asked for go; the others all over the range. */
  private static Timestamp time(Random random, int i, int count, int from, int to, boolean fractions) {
    int low = i % 2 == 0 ? from : Math.max(from, 1840);
    int high = i % 2 == 0 ? to : Math.min(to, 2100);
    int year = low + (int) ((long) i * (high - low + 1) / count);
    Timestamp time = Timestamp.valueOf(String.format("%04d-%02d-%02d %02d:%02d:%02d", year, 1 + random.nextInt(12), 1 + random.nextInt(28),
        random.nextInt(24), random.nextInt(60), random.nextInt(60)));
    int nanos = new int[] {0, 1000 * random.nextInt(1000000), random.nextInt(1000000000)}[random.nextInt(3)];
    time.setNanos(fractions ? nanos : 0);
    return time;
  }

  private static void acid(String[] args) throws Exception {
    TypeDescription schema = TypeDescription.fromString(ACID);
    Writer writer = writer(args[1], schema);
    VectorizedRowBatch batch = schema.createRowBatch();
    long[] keys = {Long.parseLong(args[3]), Long.parseLong(args[4]), 536870912, Long.parseLong(args[6]), Long.parseLong(args[5])};
    StructColumnVector row = (StructColumnVector) batch.cols[5];
    for (int i = 7; i < args.length; i++) {
      int at = batch.size++;
      for (int column = 0; column < keys.length; column++) {
        ((LongColumnVector) batch.cols[column]).vector[at] = keys[column] + (column == 3 ? i - 7 : 0);
      }
      if (keys[0] == 2) {
        row.noNulls = false;
        row.isNull[at] = true;
      } else {
        ((LongColumnVector) row.fields[0]).vector[at] = keys[3] + i - 7;
        ((TimestampColumnVector) row.fields[1]).set(at, Timestamp.valueOf(args[i]));
      }
    }
    writer.addRowBatch(batch);
    int rows = args.length - 7;
    writer.addUserMetadata("hive.acid.stats", StandardCharsets.UTF_8.encode(keys[0] == 2 ? "0,0," + rows : rows + ",0,0"));
    writer.addUserMetadata("hive.acid.version", StandardCharsets.UTF_8.encode("2"));
    writer.close();
  }

  private static void find(String file, String acid) throws Exception {
    Reader source = reader(file);
    VectorizedRowBatch batch = source.getSchema().createRowBatch();
    RecordReader rows = source.rows();
    TimestampColumnVector times = (TimestampColumnVector) batch.cols[1];
    int asked = 0;
    int missed = 0;
    while (rows.nextBatch(batch)) {
      for (int i = 0; i < batch.size; i++) {
        if (times.noNulls || !times.isNull[i]) {
          asked++;
          Timestamp time = new Timestamp(times.asScratchTimestamp(i).getTime());
          time.setNanos(times.getNanos(i));
          missed += holds(reader(acid), time) ? 0 : 1;
        }
      }
    }
    System.out.println(asked + " " + missed);
  }

  private static Reader reader(String file) throws Exception {
    return OrcFile.createReader(new Path("file://" + file), OrcFile.readerOptions(new Configuration()));
  }

  private static boolean holds(Reader reader, Timestamp wanted) throws Exception {
    SearchArgument sarg = SearchArgumentFactory.newBuilder().startAnd().equals("t", PredicateLeaf.Type.TIMESTAMP, wanted).end().build();
    RecordReader rows = reader.rows(reader.options().searchArgument(sarg, new String[] {"id", "t", "l", "s"}));
    VectorizedRowBatch batch = reader.getSchema().createRowBatch();
    TimestampColumnVector times = (TimestampColumnVector) ((StructColumnVector) batch.cols[5]).fields[1];
    while (rows.nextBatch(batch)) {
      for (int i = 0; i < batch.size; i++) {
        if ((times.noNulls || !times.isNull[i]) && times.asScratchTimestamp(i).equals(wanted)) {
          return true;
        }
      }
    }
    return false;
  }

  private static void rows() throws Exception {
    Scanner paths = new Scanner(System.in, "UTF-8");
    PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
    while (paths.hasNextLine()) {
      try {
        Reader file = reader(paths.nextLine());
        VectorizedRowBatch batch = file.getSchema().createRowBatch();
        RecordReader source = file.rows();
        int first = file.getSchema().getFieldNames().contains("originalTransaction") ? 5 : 0;
        StringBuilder line = new StringBuilder();
        while (source.nextBatch(batch)) {
          for (int row = 0; row < batch.size; row++) {
            line.setLength(0);
            for (int column = first; column < batch.numCols; column++) {
              batch.cols[column].stringifyValue(line.append(column == 0 ? "[" : first > 0 ? "" : ", "), row);
            }
            answers.println("R" + line.append(first == 0 ? "]" : "").toString().replace("\n", "\\n"));
          }
        }
        source.close();
        answers.println("D");
      } catch (Throwable error) {
        answers.println("E" + String.valueOf(error).replace('\n', ' '));
      }
      answers.flush();
    }
  }

  private static void odd(String directory) throws Exception {
    TypeDescription schema = TypeDescription.fromString("struct<id:int,m:map<string,int>>");
    Writer writer = writer(directory + "/null-key/000000_0", schema);
    VectorizedRowBatch batch = schema.createRowBatch();
    MapColumnVector map = (MapColumnVector) batch.cols[1];
    map.keys.ensureSize(20, false);
    map.values.ensureSize(20, false);
    map.keys.noNulls = false;
    for (int i = 0; i < 5; i++) {
      ((LongColumnVector) batch.cols[0]).vector[i] = i;
      map.offsets[i] = i * 2;
      map.lengths[i] = 2;
      ((BytesColumnVector) map.keys).setVal(i * 2, ("k" + i).getBytes(StandardCharsets.UTF_8));
      ((BytesColumnVector) map.keys).setVal(i * 2 + 1, "z".getBytes(StandardCharsets.UTF_8));
    }
    map.keys.isNull[4] = true;
    map.childCount = 10;
    batch.size = 5;
    writer.addRowBatch(batch);
    writer.close();

    schema = TypeDescription.fromString("struct<id:int,t:timestamp,l:array<timestamp>>");
    for (int nanos : new int[] {1000000000, 2000000007}) {
      for (int nested = 0; nested < 2; nested++) {
        writer = writer(directory + "/nanos-" + nanos + "-" + nested + "/000000_0", schema);
        batch = schema.createRowBatch();
        TimestampColumnVector t = (TimestampColumnVector) batch.cols[1];
        ListColumnVector l = (ListColumnVector) batch.cols[2];
        for (int i = 0; i < 5; i++) {
          t.set(i, Timestamp.valueOf("1960-01-01 00:00:00"));
          l.offsets[i] = i;
          l.lengths[i] = 1;
          ((TimestampColumnVector) l.child).set(i, Timestamp.valueOf("1960-01-01 00:00:00"));
        }
        l.childCount = 5;
        (nested == 0 ? t : (TimestampColumnVector) l.child).nanos[3] = nanos;
        batch.size = 5;
        writer.addRowBatch(batch);
        writer.close();
      }
    }
  }
}
