import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.hadoop.ParquetOutputFormat;
import org.apache.parquet.hadoop.ParquetReader;
import org.apache.parquet.hadoop.example.GroupReadSupport;
import org.apache.parquet.hadoop.example.GroupWriteSupport;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.parquet.schema.OriginalType;
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName;
import org.apache.parquet.schema.Type;

/**
 * Writes and reads Parquet files by one release of parquet-mr; the same source compiles against every release from 1.7 on.
 *
 * Each line of the input is a request, fields separated by tabs; the answer is lines that begin with R, then one that begins with D, or with E and an exception.
 *
 * write FILE CODEC ROWS SEED SCHEMA KEY=VALUE...: random rows; the pairs are Hadoop settings. With "reused=true" all texts of a file lie in one array, as those of a Text object do.
 * read FILE KEY=VALUE...: a line for each row, in which every value is its bits.
 */
public final class Parquet {
  private static final String DIGITS = "0123456789abcdef";

  private static final Configuration DEFAULTS = new Configuration();

  static {
    DEFAULTS.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem"); // no files of checksums
  }

  private Parquet() {}

  public static void main(String[] args) throws Exception {
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream answers = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
    System.setOut(System.err);
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      String[] request = line.split("\t");
      try {
        if (request[0].equals("write")) {
          write(request);
        } else {
          read(request, answers);
        }
        answers.println("D");
      } catch (Throwable error) {
        answers.println("E" + String.valueOf(error).replace('\n', ' '));
      }
      answers.flush();
    }
  }

  private static Configuration configuration(String[] request, int from) {
    Configuration conf = new Configuration(DEFAULTS);
    for (int i = from; i < request.length; i++) {
      String[] pair = request[i].split("=", 2);
      conf.set(pair[0], pair[1]);
    }
    return conf;
  }

  private static void write(String[] request) throws Exception {
    Configuration conf = configuration(request, 6);
    MessageType schema = MessageTypeParser.parseMessageType(request[5]);
    GroupWriteSupport.setSchema(schema, conf);
    RecordWriter<Void, Group> writer = new ParquetOutputFormat<Group>(new GroupWriteSupport())
        .getRecordWriter(conf, new Path("file://" + request[1]), CompressionCodecName.valueOf(request[2]));
    Random random = new Random(Long.parseLong(request[4]));
    byte[] reused = conf.getBoolean("reused", false) ? new byte[8] : null;
    for (int i = 0; i < Integer.parseInt(request[3]); i++) {
      SimpleGroup row = new SimpleGroup(schema);
      fill(row, random, reused);
      writer.write(null, row);
    }
    writer.close(null);
  }

  private static void fill(Group group, Random random, byte[] reused) {
    List<Type> types = group.getType().getFields();
    for (int field = 0; field < types.size(); field++) {
      Type type = types.get(field);
      int count = type.isRepetition(Type.Repetition.REQUIRED) ? 1
          : type.isRepetition(Type.Repetition.OPTIONAL) ? Math.min(1, random.nextInt(6)) : random.nextInt(4);
      for (int i = 0; i < count; i++) {
        if (type.isPrimitive()) {
          add(group, field, type, random, reused);
        } else {
          fill(group.addGroup(field), random, reused);
        }
      }
    }
  }

  private static void add(Group group, int field, Type type, Random random, byte[] reused) {
    PrimitiveTypeName name = type.asPrimitiveType().getPrimitiveTypeName();
    switch (name) {
      case INT32:
        group.add(field, random.nextInt() >> (type.getOriginalType() == null ? random.nextInt(32) : 24));
        break;
      case INT64:
        group.add(field, random.nextLong() >> (type.getOriginalType() == null ? random.nextInt(64) : 20));
        break;
      case BOOLEAN:
        group.add(field, random.nextBoolean());
        break;
      case FLOAT:
        group.add(field, random.nextInt(20) == 0 ? -0f : (float) random.nextGaussian());
        break;
      case DOUBLE:
        group.add(field, random.nextInt(20) == 0 ? Double.NaN : random.nextGaussian());
        break;
      default:
        boolean text = name == PrimitiveTypeName.BINARY;
        byte[] bytes = text ? text(random, type.getOriginalType()) : new byte[name == PrimitiveTypeName.INT96 ? 12 : type.asPrimitiveType().getTypeLength()];
        if (name == PrimitiveTypeName.INT96) {
          ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).putLong((long) (random.nextDouble() * 86_400e9)).putInt(2_440_588 + random.nextInt(20_000));
        } else if (!text) {
          random.nextBytes(bytes);
          bytes[0] = 0; // within the precision of a decimal
        }
        if (text && reused != null && bytes.length <= reused.length) {
          System.arraycopy(bytes, 0, reused, 0, bytes.length);
          group.add(field, Binary.fromByteArray(reused, 0, bytes.length));
        } else {
          group.add(field, Binary.fromByteArray(bytes));
        }
    }
  }

  /** Often one of few, so that there are dictionaries; now and then beyond ASCII, where signed and unsigned bytes have another order. */
  private static byte[] text(Random random, OriginalType annotation) {
    Random letters = random.nextInt(3) > 0 ? new Random(random.nextInt(20)) : random;
    StringBuilder text = new StringBuilder();
    for (int i = letters.nextInt(8); i > 0; i--) {
      text.append((char) (letters.nextInt(5) == 0 ? 0xE0 + letters.nextInt(30) : 'a' + letters.nextInt(26)));
    }
    byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
    return annotation == OriginalType.DECIMAL ? new byte[] {(byte) letters.nextInt(), (byte) letters.nextInt()} : bytes;
  }

  private static void read(String[] request, PrintStream answers) throws Exception {
    ParquetReader<Group> reader = ParquetReader.builder(new GroupReadSupport(), new Path("file://" + request[1]))
        .withConf(configuration(request, 2)).build();
    try {
      StringBuilder line = new StringBuilder();
      for (Group row = reader.read(); row != null; row = reader.read()) {
        line.setLength(0);
        values(row, line.append('R'));
        answers.println(line);
      }
    } finally {
      reader.close();
    }
  }

  private static void values(Group group, StringBuilder line) {
    GroupType type = group.getType();
    for (int field = 0; field < type.getFieldCount(); field++) {
      line.append(field == 0 ? "" : ",");
      for (int i = 0; i < group.getFieldRepetitionCount(field); i++) {
        line.append(i == 0 ? "" : ";");
        if (type.getType(field).isPrimitive()) {
          value(group, field, i, line);
        } else {
          line.append('(');
          values(group.getGroup(field, i), line);
          line.append(')');
        }
      }
    }
  }

  private static void value(Group group, int field, int i, StringBuilder line) {
    switch (group.getType().getType(field).asPrimitiveType().getPrimitiveTypeName()) {
      case INT32:
        line.append(group.getInteger(field, i));
        break;
      case INT64:
        line.append(group.getLong(field, i));
        break;
      case BOOLEAN:
        line.append(group.getBoolean(field, i));
        break;
      case FLOAT:
        line.append(Integer.toHexString(Float.floatToRawIntBits(group.getFloat(field, i))));
        break;
      case DOUBLE:
        line.append(Long.toHexString(Double.doubleToRawLongBits(group.getDouble(field, i))));
        break;
      case INT96:
        hex(group.getInt96(field, i).getBytes(), line);
        break;
      default:
        hex(group.getBinary(field, i).getBytes(), line);
    }
  }

  private static void hex(byte[] bytes, StringBuilder line) {
    line.append('x');
    for (byte one : bytes) {
      line.append(DIGITS.charAt(one >> 4 & 15)).append(DIGITS.charAt(one & 15));
    }
  }
}
