import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/**
 * What one release of Hive says of itself: the defaults of its settings, and what it reads in the directory of an insert-only table.
 *
 * Arguments: the class path of the release. One request a line on standard input, its fields separated by tabs and percent-encoded:
 *   settings: a line "S" + class, name, older name, default (in Base64) for each setting of HiveConf, MetastoreConf and OrcConf
 *   reads, value of hive.mm.allow.originals (empty: as delivered), directory: a line "F" + path for each file that a query reads
 * Then "D", or "E" + message. The release is reached by reflection, and its class files may be those of a later Java than ours.
 */
public final class Release {
  private static final int OURS = 61;  // Java 17

  /** Loads class files of later versions as those of Java 17. */
  private static final class Lowered extends URLClassLoader {
    Lowered(URL[] jars) {
      super(jars, ClassLoader.getPlatformClassLoader());
    }

    @Override protected Class<?> findClass(String name) throws ClassNotFoundException {
      URL found = findResource(name.replace('.', '/') + ".class");
      if (found == null) {
        throw new ClassNotFoundException(name);
      }
      try (InputStream stream = found.openStream()) {
        byte[] bytes = stream.readAllBytes();
        if ((bytes[7] & 0xff) <= OURS) {
          return super.findClass(name);  // Hive 3.1 asks where its class came from
        }
        bytes[7] = OURS;
        return defineClass(name, bytes, 0, bytes.length);
      } catch (IOException error) {
        throw new ClassNotFoundException(name, error);
      }
    }
  }

  public static void main(String[] args) throws Exception {
    List<URL> jars = new ArrayList<>();
    for (String jar : args[0].split(File.pathSeparator)) {
      jars.add(new File(jar).toURI().toURL());
    }
    ClassLoader loader = new Lowered(jars.toArray(new URL[0]));
    Thread.currentThread().setContextClassLoader(loader);
    PrintStream out = System.out;
    System.setOut(System.err);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      String[] fields = line.split("\t", -1);
      for (int at = 0; at < fields.length; at++) {
        fields[at] = URLDecoder.decode(fields[at], StandardCharsets.UTF_8);
      }
      try {
        if (fields[0].equals("settings")) {
          settings(loader, out);
        } else {
          reads(loader, fields[1], fields[2], out);
        }
        out.println("D");
      } catch (Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null) {
          cause = cause.getCause();
        }
        out.println("E" + String.valueOf(cause).replace('\n', ' '));
      }
      out.flush();
    }
  }

  private static void settings(ClassLoader loader, PrintStream out) throws Exception {
    Class<?> hive = loader.loadClass("org.apache.hadoop.hive.conf.HiveConf$ConfVars");
    for (Object setting : hive.getEnumConstants()) {
      String name = (String) hive.getField("varname").get(setting);
      tell(out, "HiveConf", name, "", hive.getMethod("getDefaultValue").invoke(setting));
    }
    Class<?> metastore = loader.loadClass("org.apache.hadoop.hive.metastore.conf.MetastoreConf$ConfVars");
    for (Object setting : metastore.getEnumConstants()) {
      String name = (String) metastore.getMethod("getVarname").invoke(setting);
      String older = (String) metastore.getMethod("getHiveName").invoke(setting);
      tell(out, "MetastoreConf", name, String.valueOf(older), metastore.getMethod("getDefaultVal").invoke(setting));
    }
    Class<?> orc = loader.loadClass("org.apache.orc.OrcConf");
    for (Object setting : orc.getEnumConstants()) {
      String name = (String) orc.getMethod("getAttribute").invoke(setting);
      Object older = orc.getMethod("getHiveConfName").invoke(setting);
      tell(out, "OrcConf", name, older == null ? "" : String.valueOf(older), orc.getMethod("getDefaultValue").invoke(setting));
    }
  }

  private static void tell(PrintStream out, String where, String name, String older, Object value) {
    byte[] text = (value == null ? "" : String.valueOf(value)).getBytes(StandardCharsets.UTF_8);
    out.println("S" + String.join("\t", where, name, older, Base64.getEncoder().encodeToString(text)));
  }

  private static void reads(ClassLoader loader, String allowed, String directory, PrintStream out) throws Exception {
    Class<?> configuration = loader.loadClass("org.apache.hadoop.conf.Configuration");
    Object conf = loader.loadClass("org.apache.hadoop.mapred.JobConf").getConstructor(boolean.class).newInstance(false);
    Method set = configuration.getMethod("set", String.class, String.class);
    set.invoke(conf, "fs.defaultFS", "file:///");
    set.invoke(conf, "fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem");
    String everything = Long.MAX_VALUE + ":" + Long.MAX_VALUE + "::";
    set.invoke(conf, "hive.txn.valid.txns", everything);
    if (!allowed.isEmpty()) {
      set.invoke(conf, "hive.mm.allow.originals", allowed);
    }
    Object path = loader.loadClass("org.apache.hadoop.fs.Path").getConstructor(String.class).newInstance("file://" + directory);
    Class<?> ids = loader.loadClass("org.apache.hadoop.hive.common.ValidWriteIdList");
    Object every = writeIds(loader.loadClass("org.apache.hadoop.hive.common.ValidReaderWriteIdList"), "db.t:" + everything);
    List<Object> whole = new ArrayList<>();
    List<Object> onlyFiles = new ArrayList<>();
    loader.loadClass("org.apache.hadoop.hive.ql.io.HiveInputFormat")
        .getMethod("processPathsForMmRead", List.class, configuration, ids, List.class, List.class)
        .invoke(null, List.of(path), conf, every, whole, onlyFiles);
    for (Object each : whole) {
      below(directoryOf(each), true, out);
    }
    for (Object each : onlyFiles) {
      below(directoryOf(each), false, out);
    }
  }

  private static Object writeIds(Class<?> list, String text) throws Exception {
    try {
      return list.getConstructor(String.class).newInstance(text);
    } catch (NoSuchMethodException from4dot1) {
      return list.getMethod("fromValue", String.class).invoke(null, text);
    }
  }

  private static File directoryOf(Object path) throws Exception {
    return new File(((java.net.URI) path.getClass().getMethod("toUri").invoke(path)).getPath());
  }

  /** The files that Hadoop's FileInputFormat lists. */
  private static void below(File directory, boolean recursive, PrintStream out) {
    for (File child : directory.listFiles()) {
      if (child.getName().startsWith("_") || child.getName().startsWith(".")) {
        continue;
      }
      if (!child.isDirectory()) {
        out.println("F" + child);
      } else if (recursive) {
        below(child, true, out);
      }
    }
  }
}
