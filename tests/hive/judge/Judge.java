import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntFunction;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.hive.common.ValidTxnList;
import org.apache.hadoop.hive.common.ValidWriteIdList;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.exec.SerializationUtilities;
import org.apache.hadoop.hive.ql.exec.Utilities;
import org.apache.hadoop.hive.ql.exec.vector.VectorExtractRow;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatchCtx;
import org.apache.hadoop.hive.ql.io.AcidInputFormat;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.ql.io.RecordIdentifier;
import org.apache.hadoop.hive.ql.io.orc.OrcInputFormat;
import org.apache.hadoop.hive.ql.io.orc.OrcStruct;
import org.apache.hadoop.hive.ql.metadata.VirtualColumn;
import org.apache.hadoop.hive.ql.plan.ExprNodeColumnDesc;
import org.apache.hadoop.hive.ql.plan.ExprNodeConstantDesc;
import org.apache.hadoop.hive.ql.plan.ExprNodeDesc;
import org.apache.hadoop.hive.ql.plan.ExprNodeGenericFuncDesc;
import org.apache.hadoop.hive.ql.plan.MapWork;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDF;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDFOPEqual;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDFOPEqualOrGreaterThan;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDFOPEqualOrLessThan;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDFOPGreaterThan;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDFOPLessThan;
import org.apache.hadoop.hive.ql.udf.generic.GenericUDFOPNull;
import org.apache.hadoop.hive.serde2.ColumnProjectionUtils;
import org.apache.hadoop.hive.serde2.objectinspector.ListObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.MapObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorConverters;
import org.apache.hadoop.hive.serde2.objectinspector.PrimitiveObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.StructField;
import org.apache.hadoop.hive.serde2.objectinspector.StructObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.UnionObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.primitive.PrimitiveObjectInspectorFactory;
import org.apache.hadoop.hive.serde2.typeinfo.PrimitiveTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.StructTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.mapred.FileInputFormat;
import org.apache.hadoop.mapred.InputSplit;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.RecordReader;
import org.apache.hadoop.mapred.Reporter;

/**
 * What Hive's own ORC input format reads in a directory of a full-ACID table, without a metastore.
 *
 * One request a line on standard input, answered before the next is read. A request has the fields
 * mode (row: OrcRawRecordMerger; vector: VectorizedOrcAcidRowBatchReader), buckets, write ids, transactions, schema, directory, query
 * (see Query), separated by tabs, each percent-encoded. The answer is a line "R" + JSON [writeid, bucketid, rowid, [values]] for each row,
 * then "D"; or a line "E" + message. Values: text in quotation marks, null, or nested lists; floats are the hexadecimal of their bits.
 *
 * The same source compiles against Hive 3.1 and 4.
 */
public final class Judge {
  private static final List<Object> KRYOS = new ArrayList<>();
  private static final AtomicInteger REQUESTS = new AtomicInteger();

  /** As the release delivers it: HiveConf's own defaults, such as orc.force.positional.evolution, over Hadoop's and ORC's. */
  static final JobConf DEFAULTS = new JobConf(new HiveConf());

  static {
    DEFAULTS.size();  // reads the files of Hadoop's defaults, which then needn't be read for each request
  }

  private Judge() {}

  public static void main(String[] args) throws Exception {
    PrintWriter out = new PrintWriter(new BufferedWriter(
        new OutputStreamWriter(new FileOutputStream(FileDescriptor.out), StandardCharsets.UTF_8), 1 << 16));
    System.setOut(System.err);  // whatever Hive prints must not get among the answers
    provideKryos();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      try {
        answer(line, out);
        out.println("D");
      } catch (Throwable error) {
        StringWriter trace = new StringWriter();
        error.printStackTrace(new PrintWriter(trace));
        out.println("E" + trace.toString().replace('\n', '|'));
      }
      out.flush();
    }
    out.flush();
    System.exit(0);  // Hive leaves threads behind
  }

  private static void answer(String line, PrintWriter out) throws Exception {
    String[] fields = line.split("\t", -1);
    for (int i = 0; i < fields.length; i++) {
      fields[i] = URLDecoder.decode(fields[i], "UTF-8");
    }
    new Look(fields[0].equals("vector"), fields[1], fields[2], fields[3], fields[4], fields[5], fields[6]).read(out);
  }

  /** What has listed a directory; it may read later, and again. */
  interface Listed {
    void read(PrintWriter out) throws Exception;
  }

  /**
   * What a query needs of a table, and how it is read: lines of "name=value". Names are settings of Hive, or judge.columns (places of
   * the columns that it reads, separated by commas), judge.where (a column's place, a comparison and a value, separated by blanks:
   * what is pushed down to the files; "null" compares with NULL) and judge.ids (false: it needs no ROW__ID).
   */
  static final class Query {
    private final int[] columns;
    private boolean ids = true;

    Query(String lines, StructTypeInfo schema, JobConf conf) throws Exception {
      int[] chosen = IntStream.range(0, schema.getAllStructFieldNames().size()).toArray();
      for (String line : lines.isEmpty() ? new String[0] : lines.split("\n")) {
        String[] pair = line.split("=", 2);
        if (pair[0].equals("judge.columns")) {
          chosen = Arrays.stream(pair[1].split(",")).mapToInt(Integer::parseInt).toArray();
        } else if (pair[0].equals("judge.ids")) {
          ids = Boolean.parseBoolean(pair[1]);
        } else if (pair[0].equals("judge.where")) {
          push(pair[1].split(" ", 3), schema, conf);
        } else {
          conf.set(pair[0], pair[1]);
        }
      }
      columns = chosen;
      if (!lines.isEmpty()) {
        conf.setBoolean(ColumnProjectionUtils.READ_ALL_COLUMNS, false);
        conf.set(ColumnProjectionUtils.READ_COLUMN_IDS_CONF_STR, joined(columns, String::valueOf));
        conf.set(ColumnProjectionUtils.READ_COLUMN_NAMES_CONF_STR, joined(columns, schema.getAllStructFieldNames()::get));
      }
    }

    private static String joined(int[] columns, IntFunction<String> text) {
      return Arrays.stream(columns).mapToObj(text).collect(Collectors.joining(","));
    }

    /** As Hive's compiler hands a filter to the scan of a table. */
    private static void push(String[] words, StructTypeInfo schema, JobConf conf) throws Exception {
      int place = Integer.parseInt(words[0]);
      PrimitiveTypeInfo type = (PrimitiveTypeInfo) schema.getAllStructFieldTypeInfos().get(place);
      List<ExprNodeDesc> operands = new ArrayList<>();
      operands.add(new ExprNodeColumnDesc(type, schema.getAllStructFieldNames().get(place), "t", false));
      if (!words[1].equals("null")) {
        operands.add(new ExprNodeConstantDesc(type, ObjectInspectorConverters.getConverter(
            PrimitiveObjectInspectorFactory.javaStringObjectInspector,
            PrimitiveObjectInspectorFactory.getPrimitiveJavaObjectInspector(type)).convert(words[2])));
      }
      GenericUDF comparison;
      switch (words[1]) {
        case "=": comparison = new GenericUDFOPEqual(); break;
        case "<": comparison = new GenericUDFOPLessThan(); break;
        case "<=": comparison = new GenericUDFOPEqualOrLessThan(); break;
        case ">": comparison = new GenericUDFOPGreaterThan(); break;
        case ">=": comparison = new GenericUDFOPEqualOrGreaterThan(); break;
        case "null": comparison = new GenericUDFOPNull(); break;
        default: throw new IOException("no comparison " + words[1]);
      }
      conf.set("hive.io.filter.expr.serialized",
          SerializationUtilities.serializeExpression(ExprNodeGenericFuncDesc.newInstance(comparison, operands)));
    }
  }

  /** Local files that lie in blocks of judge.block bytes, as on HDFS: a split may begin and end in the middle of a stripe. */
  public static final class Blocks extends LocalFileSystem {
    public Blocks() {
      super(new RawLocalFileSystem() {
        @Override public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long length) {
          long size = getConf().getLong("judge.block", Long.MAX_VALUE);
          List<BlockLocation> blocks = new ArrayList<>();
          for (long at = start / size * size; at < Math.min(start + length, file.getLen()); at += size) {
            blocks.add(new BlockLocation(new String[] {"localhost:0"}, new String[] {"localhost"}, at, Math.min(size, file.getLen() - at)));
          }
          return blocks.toArray(new BlockLocation[0]);
        }
      });
    }
  }

  /** A reader of a full-ACID table. */
  static final class Look implements Listed {
    private final boolean vector;
    private final StructTypeInfo schema;
    private final JobConf conf;
    private final Query query;
    private final VectorizedRowBatchCtx context;
    private final OrcInputFormat format = new OrcInputFormat();
    private final InputSplit[] splits;

    Look(boolean vector, String buckets, String writeIds, String txns, String columns, String directory, String asked) throws Exception {
      this.vector = vector;
      schema = (StructTypeInfo) TypeInfoUtils.getTypeInfoFromTypeString(columns);
      conf = configuration(schema, buckets, writeIds, txns);
      query = new Query(asked, schema, conf);
      Path path = new Path(directory);
      FileInputFormat.setInputPaths(conf, path.getFileSystem(conf).makeQualified(path));
      context = vector ? context(schema, query) : null;
      plan();
      try {
        splits = format.getSplits(conf, 1);
      } finally {
        Utilities.clearWork(conf);
      }
    }

    private void plan() {
      MapWork work = new MapWork();
      work.setVectorMode(vector);
      if (vector) {
        work.setVectorizedRowBatchCtx(context);
      }
      conf.set("hive.exec.plan", "file:///judge/" + REQUESTS.incrementAndGet());  // names the plan in Utilities' cache; there is no such file
      Utilities.setMapWork(conf, work);
    }

    @Override public void read(PrintWriter out) throws Exception {
      plan();
      try {
        for (InputSplit split : splits) {
          if (vector) {
            readBatches(format, split, conf, context, query, out);
          } else {
            readRows(format, split, conf, schema, out);
          }
        }
      } finally {
        Utilities.clearWork(conf);
      }
    }
  }

  static JobConf configuration(StructTypeInfo schema, String buckets, String writeIds, String txns) {
    List<String> types = new ArrayList<>();
    for (TypeInfo type : schema.getAllStructFieldTypeInfos()) {
      types.add(type.getTypeName());
    }
    String names = String.join(",", schema.getAllStructFieldNames());
    JobConf conf = new JobConf(DEFAULTS);
    conf.set("fs.defaultFS", "file:///");
    conf.set("columns", names);
    conf.set("columns.types", String.join(":", types));
    conf.set("schema.evolution.columns", names);
    conf.set("schema.evolution.columns.types", String.join(":", types));
    conf.set("bucket_count", buckets);
    conf.set("transactional", "true");
    conf.set("transactional_properties", "default");
    AcidUtils.setAcidOperationalProperties(conf, true, AcidUtils.AcidOperationalProperties.getDefault());
    conf.set(ValidWriteIdList.VALID_WRITEIDS_KEY, writeIds);
    if (!txns.isEmpty()) {
      conf.set(ValidTxnList.VALID_TXNS_KEY, txns);
    }
    return conf;
  }

  /** The table's columns and, after them, ROW__ID if it is needed. */
  private static VectorizedRowBatchCtx context(StructTypeInfo schema, Query query) {
    List<String> names = new ArrayList<>(schema.getAllStructFieldNames());
    List<TypeInfo> types = new ArrayList<>(schema.getAllStructFieldTypeInfos());
    if (query.ids) {
      names.add(VirtualColumn.ROWID.getName());
      types.add(RecordIdentifier.StructInfo.typeInfo);
    }
    VirtualColumn[] needed = query.ids ? new VirtualColumn[] {VirtualColumn.ROWID} : new VirtualColumn[0];
    return new VectorizedRowBatchCtx(names.toArray(new String[0]), types.toArray(new TypeInfo[0]), null, query.columns, 0, needed.length,
        needed, new String[0], null);
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static void readRows(OrcInputFormat format, InputSplit split, JobConf conf, StructTypeInfo schema, PrintWriter out)
      throws Exception {
    StructObjectInspector inspector = (StructObjectInspector) OrcStruct.createObjectInspector(schema);
    RecordReader reader = format.getRecordReader(split, conf, Reporter.NULL);
    try {
      Object key = reader.createKey();
      Object value = reader.createValue();
      while (reader.next(key, value)) {
        RecordIdentifier id = ((AcidInputFormat.AcidRecordReader) reader).getRecordIdentifier();
        StringBuilder line = start(id.getWriteId(), id.getBucketProperty(), id.getRowId());
        append(line, value, inspector);
        out.println(line.append("]"));
      }
    } finally {
      reader.close();
    }
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static void readBatches(OrcInputFormat format, InputSplit split, JobConf conf, VectorizedRowBatchCtx context, Query query,
      PrintWriter out) throws Exception {
    TypeInfo[] types = context.getRowColumnTypeInfos();
    int columns = query.ids ? types.length - 1 : types.length;
    ObjectInspector[] inspectors = new ObjectInspector[columns];
    for (int i = 0; i < columns; i++) {
      inspectors[i] = TypeInfoUtils.getStandardWritableObjectInspectorFromTypeInfo(types[i]);
    }
    Map<Integer, VectorExtractRow> extracts = new HashMap<>();
    for (int column : IntStream.concat(IntStream.of(query.columns), IntStream.range(columns, types.length)).toArray()) {
      extracts.put(column, new VectorExtractRow());
      extracts.get(column).init(new TypeInfo[] {types[column]}, new int[] {column});
    }
    Object[] row = new Object[types.length];
    Object[] cell = new Object[1];
    RecordReader reader = format.getRecordReader(split, conf, Reporter.NULL);
    try {
      Object key = reader.createKey();
      VectorizedRowBatch batch = (VectorizedRowBatch) reader.createValue();
      while (reader.next(key, batch)) {
        for (int i = 0; i < batch.size; i++) {
          for (Map.Entry<Integer, VectorExtractRow> extract : extracts.entrySet()) {
            extract.getValue().extractRow(batch, batch.selectedInUse ? batch.selected[i] : i, cell);  // deleted rows are in the batch, not among the selected
            row[extract.getKey()] = cell[0];
          }
          List<?> id = query.ids ? (List<?>) row[columns] : List.of(0, 0, 0);
          StringBuilder line = start(number(id.get(0)), number(id.get(1)), number(id.get(2)));
          line.append('[');
          for (int column = 0; column < columns; column++) {
            append(column == 0 ? line : line.append(','), row[column], inspectors[column]);
          }
          out.println(line.append("]]"));
        }
      }
    } finally {
      reader.close();
    }
  }

  private static long number(Object writable) {
    return Long.parseLong(writable.toString());
  }

  static StringBuilder start(long writeId, long bucket, long row) {
    return new StringBuilder("R[").append(writeId).append(',').append(bucket).append(',').append(row).append(',');
  }

  static void append(StringBuilder out, Object value, ObjectInspector inspector) throws IOException {
    if (value == null) {
      out.append("null");
      return;
    }
    switch (inspector.getCategory()) {
      case PRIMITIVE: {
        Object plain = ((PrimitiveObjectInspector) inspector).getPrimitiveJavaObject(value);
        if (plain == null) {
          out.append("null");
        } else {
          quote(out, text(plain));
        }
        break;
      }
      case LIST: {
        ListObjectInspector list = (ListObjectInspector) inspector;
        out.append('[');
        for (int i = 0; i < list.getListLength(value); i++) {
          append(i == 0 ? out : out.append(','), list.getListElement(value, i), list.getListElementObjectInspector());
        }
        out.append(']');
        break;
      }
      case MAP: {
        MapObjectInspector map = (MapObjectInspector) inspector;
        String between = "";
        out.append('[');
        for (Map.Entry<?, ?> entry : map.getMap(value).entrySet()) {
          append(out.append(between).append('['), entry.getKey(), map.getMapKeyObjectInspector());
          append(out.append(','), entry.getValue(), map.getMapValueObjectInspector());
          out.append(']');
          between = ",";
        }
        out.append(']');
        break;
      }
      case STRUCT: {
        StructObjectInspector struct = (StructObjectInspector) inspector;
        String between = "";
        out.append('[');
        for (StructField field : struct.getAllStructFieldRefs()) {
          append(out.append(between), struct.getStructFieldData(value, field), field.getFieldObjectInspector());
          between = ",";
        }
        out.append(']');
        break;
      }
      case UNION: {
        UnionObjectInspector union = (UnionObjectInspector) inspector;
        int tag = union.getTag(value);
        append(out.append('[').append(tag).append(','), union.getField(value), union.getObjectInspectors().get(tag));
        out.append(']');
        break;
      }
      default:
        throw new IOException("no form for " + inspector.getTypeName());
    }
  }

  private static String text(Object plain) {
    if (plain instanceof Float) {
      return String.format("%08x", Float.floatToIntBits((Float) plain));
    }
    if (plain instanceof Double) {
      return String.format("%016x", Double.doubleToLongBits((Double) plain));
    }
    byte[] bytes = plain instanceof byte[] ? (byte[]) plain : plain instanceof BytesWritable ? ((BytesWritable) plain).copyBytes() : null;
    if (bytes == null) {
      return plain.toString();
    }
    StringBuilder hex = new StringBuilder();
    for (byte one : bytes) {
      hex.append(String.format("%02x", one));
    }
    return hex.toString();
  }

  private static void quote(StringBuilder out, String text) {
    out.append('"');
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ' || Character.isSurrogate(c)) {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }

  /** Hive 3.1 can't make its own Kryo objects on a JDK above 8, but takes those that it finds in its pool. Hive 4 needs none. */
  static void provideKryos() throws Exception {
    Class<?> kryo;
    try {
      kryo = Class.forName("org.apache.hive.com.esotericsoftware.kryo.Kryo");
    } catch (ClassNotFoundException hive4) {
      return;
    }
    for (int i = 0; i < 64; i++) {
      Object one = kryo.getDeclaredConstructor().newInstance();
      KRYOS.add(one);  // the pool itself holds them softly
      try {
        SerializationUtilities.class.getMethod("releaseKryo", kryo).invoke(null, one);
      } catch (InvocationTargetException hive40) {
        return;  // it makes its own
      }
    }
  }
}
