import java.math.BigDecimal;
import java.math.BigInteger;
import java.sql.Date;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TimeZone;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.common.type.HiveDecimal;
import org.apache.hadoop.hive.ql.io.orc.CompressionKind;
import org.apache.hadoop.hive.ql.io.orc.OrcFile;
import org.apache.hadoop.hive.ql.io.orc.Writer;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector.Category;
import org.apache.hadoop.hive.serde2.objectinspector.StandardUnionObjectInspector.StandardUnion;
import org.apache.hadoop.hive.serde2.typeinfo.ListTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.MapTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.StructTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hadoop.hive.serde2.typeinfo.UnionTypeInfo;

/**
 * ORC files as Hive wrote them when the writer was its own: releases 0.11 to 2.1, the same source for all.
 *
 * The arguments: FILE ZONE TYPE COUNT SEED. TYPE is that of the rows, a struct; a tenth of the values are NULL, but for unions; short VARCHAR and CHAR are ASCII. The zone is that of the JVM, as
 * for Hive's tasks.
 */
public final class OldHive {
  private static final long FROM = Timestamp.valueOf("1840-01-01 00:00:00").getTime();
  private static final long TO = Timestamp.valueOf("2100-01-01 00:00:00").getTime();

  private OldHive() {}

  public static void main(String[] args) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone(args[1]));
    StructTypeInfo type = (StructTypeInfo) TypeInfoUtils.getTypeInfoFromTypeString(args[2]);
    Configuration conf = new Configuration();
    Writer writer = OrcFile.createWriter(FileSystem.getLocal(conf), new Path("file://" + args[0]), conf,
        TypeInfoUtils.getStandardJavaObjectInspectorFromTypeInfo(type), 1L << 16, CompressionKind.ZLIB, 1 << 14, 1000);
    Random random = new Random(Long.parseLong(args[4]));
    for (int i = 0; i < Integer.parseInt(args[3]); i++) {
      writer.addRow(fields(type, random));
    }
    writer.close();
  }

  private static List<Object> fields(StructTypeInfo type, Random random) throws Exception {
    List<Object> fields = new ArrayList<Object>();
    for (TypeInfo field : type.getAllStructFieldTypeInfos()) {
      fields.add(maybe(field, random));
    }
    return fields;
  }

  private static Object maybe(TypeInfo type, Random random) throws Exception {
    return random.nextInt(10) == 0 && type.getCategory() != Category.UNION ? null : value(type, random);
  }

  private static Object value(TypeInfo type, Random random) throws Exception {
    int count = random.nextInt(4);
    switch (type.getCategory()) {
      case LIST:
        List<Object> list = new ArrayList<Object>();
        for (int i = 0; i < count; i++) {
          list.add(maybe(((ListTypeInfo) type).getListElementTypeInfo(), random));
        }
        return list;
      case MAP:
        Map<Object, Object> map = new LinkedHashMap<Object, Object>();
        for (int i = 0; i < count; i++) {
          map.put(value(((MapTypeInfo) type).getMapKeyTypeInfo(), random), maybe(((MapTypeInfo) type).getMapValueTypeInfo(), random));
        }
        return map;
      case STRUCT:
        return fields((StructTypeInfo) type, random);
      case UNION:
        List<TypeInfo> kinds = ((UnionTypeInfo) type).getAllUnionObjectTypeInfos();
        int tag = random.nextInt(kinds.size());
        return new StandardUnion((byte) tag, maybe(kinds.get(tag), random));
      default:
        return primitive(type.getTypeName(), random);
    }
  }

  private static Object primitive(String name, Random random) throws Exception {
    String[] parts = name.split("[(,)]");
    switch (parts[0]) {
      case "boolean":
        return random.nextBoolean();
      case "tinyint":
        return (byte) random.nextInt();
      case "smallint":
        return (short) random.nextInt();
      case "int":
        return random.nextInt() >> random.nextInt(32);
      case "bigint":
        return random.nextLong() >> random.nextInt(64);
      case "float":
        return (float) random.nextGaussian();
      case "double":
        return random.nextGaussian();
      case "string":
        return text(random, 40);
      case "binary":
        byte[] bytes = new byte[random.nextInt(20)];
        random.nextBytes(bytes);
        return bytes;
      case "timestamp":
        Timestamp time = new Timestamp(FROM + (long) (random.nextDouble() * (TO - FROM)) / 1000 * 1000);
        time.setNanos(new int[] {0, 1000 * random.nextInt(1000000), random.nextInt(1000000000)}[random.nextInt(3)]);
        return time;
      case "date":
        return new Date(FROM + (long) (random.nextDouble() * (TO - FROM)));
      case "decimal":
        return decimal(new BigDecimal(new BigInteger(parts.length > 1 ? 80 : 30, random), 5));
      case "varchar":
      case "char":
        int length = Integer.parseInt(parts[1]);
        String text = text(random, length);
        return limited(parts[0], length < 20 ? text.replaceAll("[^a-z]", "z") : text, length);
      default:
        throw new IllegalArgumentException(name);
    }
  }

  /** Often one of few, so that the writer takes a dictionary for some and none for others. */
  private static String text(Random random, int length) {
    Random letters = random.nextInt(2) == 0 ? random : new Random(random.nextInt(5));
    StringBuilder text = new StringBuilder();
    for (int i = letters.nextInt(length + 1); i > 0; i--) {
      text.append((char) (letters.nextInt(20) == 0 ? 0x4E00 + letters.nextInt(100) : 'a' + letters.nextInt(26)));
    }
    return text.toString();
  }

  private static Object decimal(BigDecimal value) throws Exception {
    try {
      return HiveDecimal.class.getMethod("create", BigDecimal.class).invoke(null, value);
    } catch (NoSuchMethodException older) {
      return HiveDecimal.class.getConstructor(BigDecimal.class).newInstance(value);
    }
  }

  /** HiveVarchar and HiveChar came with 0.12 and 0.13. */
  private static Object limited(String kind, String text, int length) throws Exception {
    Class<?> type = Class.forName("org.apache.hadoop.hive.common.type.Hive" + (kind.equals("char") ? "Char" : "Varchar"));
    return type.getConstructor(String.class, int.class).newInstance(text, length);
  }
}
