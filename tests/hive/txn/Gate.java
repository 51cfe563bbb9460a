import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.DriverManager;
import java.sql.DriverPropertyInfo;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;
import java.util.logging.Logger;

/**
 * A JDBC driver over PostgreSQL's or MySQL's for addresses that begin with "jdbc:gate:", which lets a thread be stopped before each of its statements.
 *
 * A thread that set a `Stop` is asked before each execution, commit and rollback; all others pass.
 */
public final class Gate implements Driver {
  /** What a thread does before its next statement. */
  interface Stop {
    void before(String statement);
  }

  static final ThreadLocal<Stop> STOP = new ThreadLocal<>();

  static {
    try {
      DriverManager.registerDriver(new Gate());
    } catch (SQLException error) {
      throw new ExceptionInInitializerError(error);
    }
  }

  @Override
  public Connection connect(String url, Properties info) throws SQLException {
    if (!acceptsURL(url)) {
      return null;
    }
    Connection connection = driver(url).connect(plain(url), info);
    return (Connection) proxy(Connection.class, connection, null);
  }

  private static Object proxy(Class<?> type, Object target, String sql) {
    return Proxy.newProxyInstance(Gate.class.getClassLoader(), new Class<?>[] {type}, (self, method, args) -> {
      String name = method.getName();
      Stop stop = STOP.get();
      if (stop != null) {
        if (name.equals("commit") || name.equals("rollback")) {
          stop.before(name.toUpperCase());
        } else if (name.startsWith("execute")) {
          stop.before(args != null && args.length > 0 && args[0] instanceof String ? (String) args[0] : String.valueOf(sql));
        }
      }
      Object result;
      try {
        result = method.invoke(target, args);
      } catch (InvocationTargetException error) {
        throw error.getCause();
      }
      if (type == Connection.class && result instanceof PreparedStatement) {
        return proxy(PreparedStatement.class, result, (String) args[0]);
      }
      return type == Connection.class && result instanceof Statement ? proxy(Statement.class, result, null) : result;
    });
  }

  private static Driver driver(String url) throws SQLException {
    return url.startsWith("jdbc:gate:mysql:") ? new com.mysql.cj.jdbc.Driver() : new org.postgresql.Driver();
  }

  private static String plain(String url) {
    return url.replace("jdbc:gate:", "jdbc:");
  }

  @Override
  public boolean acceptsURL(String url) {
    return url.startsWith("jdbc:gate:");
  }

  @Override
  public DriverPropertyInfo[] getPropertyInfo(String url, Properties info) throws SQLException {
    return driver(url).getPropertyInfo(plain(url), info);
  }

  @Override
  public int getMajorVersion() {
    return 1;
  }

  @Override
  public int getMinorVersion() {
    return 0;
  }

  @Override
  public boolean jdbcCompliant() {
    return false;
  }

  @Override
  public Logger getParentLogger() {
    return Logger.getGlobal();
  }
}
