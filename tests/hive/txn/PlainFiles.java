import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Local files without a `.crc` beside each, and without a process started for the rights of each (without its C library Hadoop calls `chmod`). */
public final class PlainFiles extends LocalFileSystem {
  public PlainFiles() {
    super(new Raw());
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setWriteChecksum(false);
    setVerifyChecksum(false);
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission rights) throws IOException {
      File file = pathToFile(path);
      String text = rights.getUserAction().SYMBOL + rights.getGroupAction().SYMBOL + rights.getOtherAction().SYMBOL;
      Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString(text));
    }
  }
}
