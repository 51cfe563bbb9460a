import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;
import org.apache.hadoop.util.functional.RemoteIterators;

/** The local file system without `.crc` files beside those of a table, as on HDFS, and with the break points of `Holds`. */
public class HeldFileSystem extends LocalFileSystem {
  @Override public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setWriteChecksum(false);
    setVerifyChecksum(false);
  }

  @Override public boolean rename(Path from, Path to) throws IOException {
    Holds.at("rename", from.toUri().getPath() + " -> " + to.toUri().getPath());
    return super.rename(from, to);
  }

  @Override public boolean delete(Path path, boolean recursive) throws IOException {
    Holds.at("delete", path.toUri().getPath());
    return super.delete(path, recursive);
  }

  @Override public FSDataInputStream open(Path path, int size) throws IOException {
    Holds.at("open", path.toUri().getPath());
    return super.open(path, size);
  }

  @Override public FSDataOutputStream create(
      Path path, FsPermission permission, boolean overwrite, int size, short replication, long block, Progressable progress) throws IOException {
    Holds.at("create", path.toUri().getPath());
    return super.create(path, permission, overwrite, size, replication, block, progress);
  }

  /** As HDFS lists: at one moment. Hadoop would start `ls` for the permission of each file, and fail over one that is gone by then. */
  @Override public FileStatus[] listStatus(Path path) throws IOException {
    FileStatus[] found = super.listStatus(path);
    for (int i = 0; i < found.length; i++) {
      FileStatus each = found[i];
      FsPermission permission = each.isDirectory() ? FsPermission.getDirDefault() : FsPermission.getFileDefault();
      found[i] = new FileStatus(each.getLen(), each.isDirectory(), each.getReplication(), each.getBlockSize(), each.getModificationTime(), 0L, permission, "", "", each.getPath());
    }
    Holds.at("listed", path.toUri().getPath());
    return found;
  }

  @Override public RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path) throws IOException {
    List<LocatedFileStatus> found = new ArrayList<>();
    for (FileStatus each : listStatus(path)) {
      found.add(new LocatedFileStatus(each, each.isFile() ? getFileBlockLocations(each, 0, each.getLen()) : null));
    }
    return RemoteIterators.remoteIteratorFromIterable(found);
  }
}
