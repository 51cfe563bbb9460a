import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.BindException;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.PrivilegedExceptionAction;
import java.security.SecureRandom;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.crypto.key.kms.server.MiniKMS;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSTestUtil;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;

/**
 * HDFS or YARN in one JVM on free loopback ports, for tests.
 *
 * Writes the client's *-site.xml into CONF, prints "READY", then obeys one command a line on standard input and answers each with what was asked for and "OK", or "ERROR reason".
 * Ends when standard input does, so that no server outlives its test run.
 *
 *   Servers hdfs CONF DATA DATANODES       one NameNode
 *   Servers zones CONF DATA DATANODES      one NameNode, with a KMS for encryption zones
 *   Servers ha CONF DATA DATANODES         two NameNodes, name service "ns1", the first active
 *   Servers yarn CONF DATA NODEMANAGERS MEMORY_MB     CONF names the file system to use
 *
 * What CONF's given-site.xml says, where there is one, holds for the servers and for their clients.
 */
public final class Servers {
  private static final String HOST = "127.0.0.1";
  private static final String SERVICE = "ns1";
  private static final String GIVEN = "given-site.xml";
  private static final int FIRST_PORT = 15000;
  private static final int LAST_PORT = 32768;

  private interface Commands extends AutoCloseable {
    void obey(String[] words) throws Exception;
  }

  public static void main(String[] args) {
    try {
      Path conf = Files.createDirectories(Path.of(args[1]));
      Path data = Files.createDirectories(Path.of(args[2]));
      int nodes = Integer.parseInt(args[3]);
      Commands servers = args[0].equals("yarn") ? new Yarn(conf, nodes, Integer.parseInt(args[4])) : new Hdfs(conf, data, nodes, args[0]);
      System.out.println("READY");
      BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        try {
          servers.obey(line.split(" "));
          System.out.println("OK");
        } catch (Exception e) {
          System.out.println("ERROR " + e.toString().replace('\n', ' '));
        }
      }
      servers.close();
      Runtime.getRuntime().halt(0);
    } catch (Throwable e) {
      e.printStackTrace();
      Runtime.getRuntime().halt(1);   // half a cluster leaves threads that would keep the JVM alive
    }
  }

  private static final class Hdfs implements Commands {
    private final MiniDFSCluster cluster;
    private final Path conf;
    private final Map<Integer, MiniDFSCluster.DataNodeProperties> stopped = new TreeMap<>();

    Hdfs(Path conf, Path data, int dataNodes, String kind) throws Exception {
      boolean ha = kind.equals("ha");
      this.conf = conf;
      Configuration given = given(conf);
      if (kind.equals("zones")) {
        Path keys = Files.createDirectories(data.resolve("kms"));
        MiniKMS kms = new MiniKMS.Builder().setKmsConfDir(keys.toFile()).build();
        kms.start();
        given.set("hadoop.security.key.provider.path", "kms://http@" + HOST + ":" + kms.getKMSUrl().getPort() + "/kms");
      }
      Configuration c = new Configuration();
      given.forEach(one -> c.set(one.getKey(), one.getValue()));
      UserGroupInformation.setConfiguration(c);   // who is in which group is read once, by whoever asks first
      c.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, data.resolve("dfs").toString());
      c.setBoolean("dfs.permissions.enabled", true);
      c.setBoolean("dfs.namenode.acls.enabled", true);
      c.setInt("dfs.heartbeat.interval", 1);
      c.setInt("dfs.namenode.heartbeat.recheck-interval", 500);   // a dead DataNode is known as such after about 11 s
      c.setLong("dfs.blockreport.initialDelay", 0);
      c.setInt("dfs.namenode.fs-limits.min-block-size", 1 << 20);
      for (String user : new String[] {System.getProperty("user.name"), "hive"}) {
        c.set("hadoop.proxyuser." + user + ".hosts", "*");
        c.set("hadoop.proxyuser." + user + ".groups", "*");
      }
      MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(c).numDataNodes(dataNodes).format(true);
      int[] rpc = {freePort(), freePort()};
      int[] http = {freePort(), freePort()};
      if (ha) {
        MiniDFSNNTopology.NSConf service = new MiniDFSNNTopology.NSConf(SERVICE);
        for (int i = 0; i < 2; i++) {
          service.addNN(new MiniDFSNNTopology.NNConf("nn" + (i + 1)).setIpcPort(rpc[i]).setHttpPort(http[i]));
        }
        builder.nnTopology(new MiniDFSNNTopology().addNameservice(service));
      } else {
        builder.nameNodePort(rpc[0]).nameNodeHttpPort(http[0]);
      }
      cluster = builder.build();
      Map<String, String> hdfs = new TreeMap<>(Map.of("dfs.replication", "1", "dfs.blocksize", Integer.toString(64 << 20)));
      String root = "hdfs://" + HOST + ":" + rpc[0];
      if (ha) {
        cluster.transitionToActive(0);
        root = "hdfs://" + SERVICE;
        hdfs.put("dfs.nameservices", SERVICE);
        hdfs.put("dfs.ha.namenodes." + SERVICE, "nn1,nn2");
        hdfs.put("dfs.client.failover.proxy.provider." + SERVICE, "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider");
        for (int i = 0; i < 2; i++) {
          hdfs.put("dfs.namenode.rpc-address." + SERVICE + ".nn" + (i + 1), HOST + ":" + rpc[i]);
          hdfs.put("dfs.namenode.http-address." + SERVICE + ".nn" + (i + 1), HOST + ":" + http[i]);
        }
      } else {
        hdfs.put("dfs.namenode.http-address", HOST + ":" + http[0]);
      }
      cluster.waitActive(0);
      DistributedFileSystem fs = cluster.getFileSystem(0);
      for (String directory : new String[] {"/tmp", "/user", "/warehouse"}) {
        fs.mkdirs(new org.apache.hadoop.fs.Path(directory));
        fs.setPermission(new org.apache.hadoop.fs.Path(directory), FsPermission.createImmutable((short) 01777));
      }
      Map<String, String> core = new TreeMap<>(Map.of("fs.defaultFS", root));
      given.forEach(one -> core.put(one.getKey(), one.getValue()));
      write(conf.resolve("core-site.xml"), core);
      write(conf.resolve("hdfs-site.xml"), hdfs);
    }

    @Override
    public void obey(String[] words) throws Exception {
      switch (words[0] + " " + words[1]) {
        case "safemode enter" -> active().setSafeMode(SafeModeAction.SAFEMODE_ENTER);
        case "safemode leave" -> active().setSafeMode(SafeModeAction.SAFEMODE_LEAVE);
        case "quota set" -> active().setQuota(new org.apache.hadoop.fs.Path(words[2]), limit(words[3]), limit(words[4]));
        case "zone make" -> {   // with a key of its own
          String key = words[2].substring(1).replace('/', '-');
          DFSTestUtil.createKey(key, cluster, cluster.getConfiguration(0));
          active().mkdirs(new org.apache.hadoop.fs.Path(words[2]));
          active().createEncryptionZone(new org.apache.hadoop.fs.Path(words[2]), key);
        }
        case "datanode stop" -> stopped.put(Integer.parseInt(words[2]), cluster.stopDataNode(Integer.parseInt(words[2])));
        case "datanode start" -> {
          for (MiniDFSCluster.DataNodeProperties one : stopped.values()) {
            cluster.restartDataNode(one, true);
          }
          stopped.clear();
          cluster.waitActive();
        }
        case "token get" -> {   // as who logs in by a keytab would get one: for a principal, its keytab, into a file
          Configuration client = new Configuration();
          client.addResource(conf.resolve("core-site.xml").toUri().toURL());
          client.addResource(conf.resolve("hdfs-site.xml").toUri().toURL());
          Credentials tokens = new Credentials();
          UserGroupInformation.loginUserFromKeytabAndReturnUGI(words[2], words[3]).doAs((PrivilegedExceptionAction<Object>) () ->
              FileSystem.newInstance(client).addDelegationTokens("nobody", tokens));
          tokens.writeTokenStorageFile(new org.apache.hadoop.fs.Path("file:" + words[4]), client);
        }
        case "replicas wait" -> DFSTestUtil.waitReplication(cluster.getFileSystem(), new org.apache.hadoop.fs.Path(words[2]), Short.parseShort(words[3]));
        case "namenode stop" -> cluster.shutdownNameNode(Integer.parseInt(words[2]));
        case "namenode start" -> cluster.restartNameNode(Integer.parseInt(words[2]), true);
        case "namenode activate" -> {
          int other = 1 - Integer.parseInt(words[2]);
          if (cluster.getNameNode(other) != null) {
            cluster.transitionToStandby(other);
          }
          cluster.transitionToActive(Integer.parseInt(words[2]));
        }
        default -> throw new IllegalArgumentException("unknown command " + String.join(" ", words));
      }
    }

    private DistributedFileSystem active() throws Exception {
      return cluster.getFileSystem(cluster.getNumNameNodes() > 1 && cluster.getNameNode(1) != null && cluster.getNameNode(1).isActiveState() ? 1 : 0);
    }

    private static long limit(String word) {
      return word.equals("-") ? HdfsConstants.QUOTA_RESET : Long.parseLong(word);
    }

    @Override
    public void close() {
      cluster.shutdown(true);
    }
  }

  private static final class Yarn implements Commands {
    private final MiniYARNCluster cluster;

    Yarn(Path conf, int nodeManagers, int memory) throws Exception {
      Configuration c = new YarnConfiguration();   // with core-site.xml and hdfs-site.xml of CONF, which is on the class path
      Map<String, String> manager = new TreeMap<>();
      manager.put("yarn.resourcemanager.hostname", HOST);
      for (String address : new String[] {"scheduler.address", "resource-tracker.address", "address", "admin.address", "webapp.address"}) {
        manager.put("yarn.resourcemanager." + address, HOST + ":" + freePort());
      }
      given(conf).forEach(one -> {
        if (one.getKey().startsWith("yarn.")) {   // in core-site.xml YARN's own defaults go over it
          manager.put(one.getKey(), one.getValue());
        }
      });
      manager.forEach(c::set);
      if (c.get(YarnConfiguration.RM_KEYTAB) != null) {   // the mini cluster doesn't log in by itself
        UserGroupInformation.setConfiguration(c);
        UserGroupInformation.loginUserFromKeytab(c.get(YarnConfiguration.RM_PRINCIPAL), c.get(YarnConfiguration.RM_KEYTAB));
      }
      c.setBoolean(YarnConfiguration.YARN_MINICLUSTER_FIXED_PORTS, true);
      c.setInt(YarnConfiguration.YARN_MINICLUSTER_NM_PMEM_MB, memory);
      c.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
      c.setInt("yarn.scheduler.minimum-allocation-mb", 256);
      c.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
      c.setFloat("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", 99f);
      c.setInt("yarn.nodemanager.delete.debug-delay-sec", 600);   // container logs stay for a while
      c.set("yarn.application.classpath", System.getProperty("java.class.path"));
      c.set("yarn.scheduler.capacity.root.queues", "default,compaction");
      c.set("yarn.scheduler.capacity.root.default.capacity", "50");
      c.set("yarn.scheduler.capacity.root.default.maximum-capacity", "100");
      c.set("yarn.scheduler.capacity.root.compaction.capacity", "50");
      c.set("yarn.scheduler.capacity.root.compaction.maximum-capacity", "100");
      c.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
      cluster = new MiniYARNCluster("yarn", nodeManagers, 1, 1);
      cluster.init(c);
      cluster.start();
      if (!cluster.waitForNodeManagersToConnect(60_000)) {
        throw new IllegalStateException("no NodeManager within 60 s");
      }
      write(conf.resolve("yarn-site.xml"), manager);
    }

    @Override
    public void obey(String[] words) {
      if (!words[0].equals("applications")) {
        throw new IllegalArgumentException("unknown command " + String.join(" ", words));
      }
      for (RMApp one : cluster.getResourceManager().getRMContext().getRMApps().values()) {
        System.out.println(String.join("\t", one.getApplicationId().toString(), one.getName(), one.getUser(), one.getQueue(),
            one.createApplicationState().toString(), one.getFinalApplicationStatus().toString(),
            Integer.toString(one.createAndGetApplicationReport("", true).getApplicationResourceUsageReport().getNumUsedContainers()),
            String.join(",", one.getApplicationTags())));
      }
    }

    @Override
    public void close() {
      cluster.stop();
    }
  }

  private static Configuration given(Path conf) throws Exception {
    Configuration given = new Configuration(false);
    if (Files.exists(conf.resolve(GIVEN))) {
      given.addResource(conf.resolve(GIVEN).toUri().toURL());
    }
    return given;
  }

  /** Below the range from which the system gives connections their own: one of those may be anybody's by the time the server starts. */
  private static int freePort() throws Exception {
    SecureRandom choice = new SecureRandom();
    while (true) {
      try (ServerSocket socket = new ServerSocket(FIRST_PORT + choice.nextInt(LAST_PORT - FIRST_PORT))) {
        return socket.getLocalPort();
      } catch (BindException taken) {
        continue;
      }
    }
  }

  private static void write(Path file, Map<String, String> properties) throws Exception {
    Configuration c = new Configuration(false);
    properties.forEach(c::set);
    Path whole = file.resolveSibling("." + file.getFileName());   // the servers read it too, and must not find half of it
    try (OutputStream out = Files.newOutputStream(whole)) {
      c.writeXml(out);
    }
    Files.move(whole, file, StandardCopyOption.ATOMIC_MOVE);
  }
}
