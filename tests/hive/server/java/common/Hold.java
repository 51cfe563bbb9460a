import org.apache.hadoop.hive.ql.exec.UDF;
import org.apache.hadoop.hive.ql.udf.UDFType;
import org.apache.hadoop.io.Text;

/** `hold(name, value)`: the value, after the break point `udf` of that name. */
@UDFType(deterministic = false)
public class Hold extends UDF {
  public Text evaluate(Text name, Text value) {
    Holds.at("udf", name.toString());
    return value;
  }
}
