import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.common.FileUtils;
import org.apache.hadoop.hive.common.ValidReaderWriteIdList;
import org.apache.hadoop.hive.ql.io.HiveInputFormat;
import org.apache.hadoop.hive.ql.io.orc.OrcFile;
import org.apache.hadoop.hive.ql.io.orc.Reader;
import org.apache.hadoop.hive.ql.io.orc.RecordReader;
import org.apache.hadoop.hive.serde2.typeinfo.StructTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hadoop.mapred.JobConf;

/** A reader that has listed a directory of an insert-only table: whole files, whose rows have no ROW__ID; zeros are in its place. */
final class InsertOnlyLook implements Judge.Listed {
  private final JobConf conf;
  private final List<Path> files = new ArrayList<>();

  InsertOnlyLook(String writeIds, String txns, String columns, String directory) throws Exception {
    conf = Judge.configuration((StructTypeInfo) TypeInfoUtils.getTypeInfoFromTypeString(columns), "0", writeIds, txns);
    List<Path> found = new ArrayList<>();
    Path path = new Path(directory);
    HiveInputFormat.processPathsForMmRead(List.of(path), conf, new ValidReaderWriteIdList(writeIds), found, new ArrayList<>());
    for (Path each : found) {
      for (FileStatus file : each.getFileSystem(conf).listStatus(each, FileUtils.HIDDEN_FILES_PATH_FILTER)) {
        files.add(file.getPath());
      }
    }
  }

  @Override public void read(PrintWriter out) throws Exception {
    for (Path file : files) {
      Reader reader = OrcFile.createReader(file, OrcFile.readerOptions(conf));
      RecordReader rows = reader.rows();
      Object row = null;
      while (rows.hasNext()) {
        row = rows.next(row);
        StringBuilder line = Judge.start(0, 0, 0);
        Judge.append(line, row, reader.getObjectInspector());
        out.println(line.append("]"));
      }
      rows.close();
    }
  }
}
