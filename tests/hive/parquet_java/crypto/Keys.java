import java.nio.charset.StandardCharsets;
import java.util.Collections;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.crypto.EncryptionPropertiesFactory;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext;
import org.apache.parquet.hadoop.metadata.ColumnPath;

/**
 * Encrypts what a release of parquet-mr from 1.12 on writes, where the setting "encrypted" is there: "file", the footer and all columns, or the name of the only column that is. Two fixed keys.
 */
public final class Keys implements EncryptionPropertiesFactory, DecryptionPropertiesFactory {
  private static final byte[] FOOTER = "0123456789012345".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] COLUMN = "1234567890123450".getBytes(StandardCharsets.US_ASCII);

  @Override
  public FileEncryptionProperties getFileEncryptionProperties(Configuration conf, Path file, WriteContext context) {
    String what = conf.get("encrypted");
    if (what.equals("file")) {
      return FileEncryptionProperties.builder(FOOTER).build();
    }
    ColumnPath column = ColumnPath.fromDotString(what);
    ColumnEncryptionProperties keyed = ColumnEncryptionProperties.builder(column).withKey(COLUMN).withKeyMetaData("c".getBytes(StandardCharsets.US_ASCII)).build();
    return FileEncryptionProperties.builder(FOOTER).withPlaintextFooter().withEncryptedColumns(Collections.singletonMap(column, keyed)).build();
  }

  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path file) {
    return FileDecryptionProperties.builder().withFooterKey(FOOTER).withKeyRetriever(metadata -> COLUMN).withPlaintextFilesAllowed().build();
  }
}
