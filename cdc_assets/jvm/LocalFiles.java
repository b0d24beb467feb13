package cdc_assets;

import java.io.IOException;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Local files as Hadoop has them, but with the permissions that the process gives them, and without another file of
 * checksums beside each: for these Hadoop starts the program chmod twice a file, ten times as costly as the file.
 */
public class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Plain());
    setWriteChecksum(false);
  }

  public static class Plain extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {}
  }
}
