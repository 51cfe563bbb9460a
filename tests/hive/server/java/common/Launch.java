import java.io.File;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.List;

/** Runs a main class under a URLClassLoader over the property `classpath`: Hive 3.1 casts its loader to that, which Java's own loader no longer is. */
public class Launch {
  public static void main(String[] args) throws Exception {
    List<URL> places = new ArrayList<>();
    for (String place : System.getProperty("classpath").split(File.pathSeparator)) {
      places.add(new File(place).toURI().toURL());
    }
    System.setProperty("java.class.path", System.getProperty("classpath"));
    ClassLoader loader = new URLClassLoader(places.toArray(new URL[0]), ClassLoader.getPlatformClassLoader()) {
      @Override public void close() {} // Hive's sessions, when they end, close more loaders than their own
    };
    Thread.currentThread().setContextClassLoader(loader);
    String[] rest = java.util.Arrays.copyOfRange(args, 1, args.length);
    Class.forName(args[0], true, loader).getMethod("main", String[].class).invoke(null, (Object) rest);
  }
}
