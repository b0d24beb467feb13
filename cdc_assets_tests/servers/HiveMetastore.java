import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * Hive's metastore with its own handler and protocol, at 127.0.0.1: its own main listens at every address. Arguments are
 * `KEY=VALUE` of its configuration. Prints the port it listens at.
 */
public final class HiveMetastore {
  public static void main(String[] arguments) throws Exception {
    Thread.currentThread().setContextClassLoader(HiveMetastore.class.getClassLoader());
    Configuration given = MetastoreConf.newMetastoreConf();
    given.setClassLoader(HiveMetastore.class.getClassLoader());
    given.set("fs.s3.impl", "HiveMetastore$Directories");
    for (int i = 0; i < arguments.length; i++) {
      int at = arguments[i].indexOf('=');
      given.set(arguments[i].substring(0, at), arguments[i].substring(at + 1));
    }
    TxnDbUtil.prepDb(given); // the tables of locks, which the schema made on the way lacks
    IHMSHandler handler =
        RetryingHMSHandler.getProxy(given, new HiveMetaStore.HMSHandler("metastore", given, false), false);
    TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", 0));
    System.out.println("port " + socket.getServerSocket().getLocalPort());
    System.out.flush();
    TThreadPoolServer.Args served = new TThreadPoolServer.Args(socket);
    served.processor(new TSetIpAddressProcessor(handler));
    served.protocolFactory(new TBinaryProtocol.Factory());
    new TThreadPoolServer(served).serve();
  }

  /** Directories of an object store, as a metastore sees them: there is none to make, and every one is there. */
  public static final class Directories extends RawLocalFileSystem {
    private URI store;

    public void initialize(URI store, Configuration given) throws IOException {
      this.store = store;
      setConf(given);
    }

    public URI getUri() {
      return store == null ? URI.create("s3:///") : store;
    }

    protected void checkPath(Path path) {}

    public boolean mkdirs(Path path) {
      return true;
    }

    public boolean mkdirs(Path path, FsPermission permission) {
      return true;
    }

    public FileStatus getFileStatus(Path path) {
      return new FileStatus(0, true, 1, 1, 0, path);
    }
  }
}
