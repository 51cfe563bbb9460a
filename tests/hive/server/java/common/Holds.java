import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/** Break points: a thread that comes to an operation on a path that a hold names waits there until the hold is released, or fails. */
public final class Holds {
  /** One break point: which operation, on which paths, how many threads it may still stop. */
  static final class Hold {
    final String operation;
    final Pattern path;
    final boolean fails;
    int times;
    int waiting;
    boolean released;
    final List<String> met = new ArrayList<>();

    Hold(String operation, String path, int times, boolean fails) {
      this.operation = operation;
      this.path = Pattern.compile(path);
      this.times = times;
      this.fails = fails;
    }
  }

  private static final Map<String, Hold> HOLDS = new LinkedHashMap<>();

  private Holds() {}

  static synchronized void set(String name, String operation, String path, int times, boolean fails) {
    HOLDS.put(name, new Hold(operation, path, times, fails));
  }

  /** Paths at which threads were stopped; waits for the first. */
  static synchronized List<String> met(String name, long millis) throws InterruptedException {
    Hold hold = HOLDS.get(name);
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    while (hold != null && hold.met.isEmpty() && System.nanoTime() < end) {
      Holds.class.wait(50);
    }
    return hold == null ? new ArrayList<>() : new ArrayList<>(hold.met);
  }

  static synchronized void release(String name) {
    Hold hold = HOLDS.remove(name);
    if (hold != null) {
      hold.released = true;
      Holds.class.notifyAll();
    }
  }

  /** Where a thread is about to do an operation. */
  static void at(String operation, String path) {
    synchronized (Holds.class) {
      for (Hold hold : HOLDS.values()) {
        if (hold.times > 0 && hold.operation.equals(operation) && hold.path.matcher(path).find()) {
          hold.times--;
          hold.met.add(path);
          Holds.class.notifyAll();
          if (hold.fails) {
            throw new IllegalStateException("made to fail at " + operation + " of " + path);
          }
          try {
            while (!hold.released) {
              Holds.class.wait();
            }
          } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while held at " + operation + " of " + path, error);
          }
          return;
        }
      }
    }
  }
}
