import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.hive.common.ValidReadTxnList;
import org.apache.hadoop.hive.common.ValidReaderWriteIdList;
import org.apache.hadoop.hive.common.ValidTxnList;
import org.apache.hadoop.hive.common.ValidWriteIdList;
import org.apache.thrift.TBase;
import org.apache.thrift.meta_data.EnumMetaData;
import org.apache.thrift.meta_data.FieldMetaData;
import org.apache.thrift.meta_data.FieldValueMetaData;
import org.apache.thrift.meta_data.ListMetaData;
import org.apache.thrift.meta_data.MapMetaData;
import org.apache.thrift.meta_data.SetMetaData;
import org.apache.thrift.meta_data.StructMetaData;
import org.apache.thrift.protocol.TType;

/**
 * JSON to and from what Hive's metastore takes and gives: Thrift structures by their fields' names, enumerations by name, valid lists as their text,
 * plain objects of Hive's (CompactionInfo) by all their fields.
 */
final class Json {
  private Json() {}

  /** A value for a parameter of that type. */
  static Object bind(JsonElement json, Type type) throws Exception {
    if (json == null || json.isJsonNull()) {
      return null;
    }
    Class<?> raw = type instanceof ParameterizedType ? (Class<?>) ((ParameterizedType) type).getRawType() : (Class<?>) type;
    Type[] inner = type instanceof ParameterizedType ? ((ParameterizedType) type).getActualTypeArguments() : new Type[] {String.class, String.class};
    if (raw == long.class || raw == Long.class) {
      return json.getAsLong();
    } else if (raw == int.class || raw == Integer.class) {
      return json.getAsInt();
    } else if (raw == boolean.class || raw == Boolean.class) {
      return json.getAsBoolean();
    } else if (raw == char.class) {  // CompactionInfo.state; U+0000 where there is none
      return json.getAsString().charAt(0);
    } else if (JsonElement.class.isAssignableFrom(raw)) {
      return json;
    } else if (raw == String.class) {
      return json.getAsString();
    } else if (raw == byte[].class) {
      return Base64.getDecoder().decode(json.getAsString());
    } else if (raw.isEnum()) {
      return constant(raw, json.getAsString());
    } else if (raw == ValidTxnList.class) {
      return new ValidReadTxnList(json.getAsString());
    } else if (raw == ValidWriteIdList.class) {
      return new ValidReaderWriteIdList(json.getAsString());
    } else if (TBase.class.isAssignableFrom(raw)) {
      return struct(json.getAsJsonObject(), raw);
    } else if (raw == Optional.class) {
      return Optional.of(bind(json, inner[0]));
    } else if (raw == java.util.Iterator.class) {
      return elements(json.getAsJsonArray(), inner[0]).iterator();
    } else if (Set.class.isAssignableFrom(raw)) {
      return new HashSet<>(elements(json.getAsJsonArray(), inner[0]));
    } else if (Collection.class.isAssignableFrom(raw)) {
      return elements(json.getAsJsonArray(), inner[0]);
    } else if (Map.class.isAssignableFrom(raw)) {
      Map<Object, Object> map = new HashMap<>();
      for (Map.Entry<String, JsonElement> entry : json.getAsJsonObject().entrySet()) {
        map.put(bind(new JsonPrimitive(entry.getKey()), inner[0]), bind(entry.getValue(), inner[1]));
      }
      return map;
    }
    java.lang.reflect.Constructor<?> constructor = raw.getDeclaredConstructor();
    constructor.setAccessible(true);
    Object made = constructor.newInstance();
    for (Map.Entry<String, JsonElement> entry : json.getAsJsonObject().entrySet()) {
      Field field = raw.getDeclaredField(entry.getKey());
      field.setAccessible(true);
      if (!entry.getValue().isJsonNull()) {
        field.set(made, bind(entry.getValue(), field.getGenericType()));
      }
    }
    return made;
  }

  private static List<Object> elements(JsonArray json, Type type) throws Exception {
    List<Object> found = new ArrayList<>();
    for (JsonElement one : json) {
      found.add(bind(one, type));
    }
    return found;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static Object constant(Class<?> type, String name) {
    return Enum.valueOf((Class<? extends Enum>) type, name);
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static Object struct(JsonObject json, Class<?> type) throws Exception {
    TBase made = (TBase) type.getDeclaredConstructor().newInstance();
    Map<?, ?> fields = FieldMetaData.getStructMetaDataMap((Class) type);
    Set<String> left = new HashSet<>(json.keySet());
    for (Map.Entry<?, ?> entry : fields.entrySet()) {
      FieldMetaData about = (FieldMetaData) entry.getValue();
      if (left.remove(about.fieldName) && !json.get(about.fieldName).isJsonNull()) {
        made.setFieldValue((org.apache.thrift.TFieldIdEnum) entry.getKey(), value(json.get(about.fieldName), about.valueMetaData));
      }
    }
    if (!left.isEmpty()) {
      throw new IllegalArgumentException(type.getSimpleName() + " of this release has no " + left);
    }
    return made;
  }

  private static Object value(JsonElement json, FieldValueMetaData about) throws Exception {
    if (about instanceof EnumMetaData) {
      return constant(((EnumMetaData) about).enumClass, json.getAsString());
    } else if (about instanceof StructMetaData) {
      return struct(json.getAsJsonObject(), ((StructMetaData) about).structClass);
    } else if (about instanceof ListMetaData || about instanceof SetMetaData) {
      FieldValueMetaData element = about instanceof ListMetaData ? ((ListMetaData) about).elemMetaData : ((SetMetaData) about).elemMetaData;
      List<Object> found = new ArrayList<>();
      for (JsonElement one : json.getAsJsonArray()) {
        found.add(value(one, element));
      }
      return about instanceof ListMetaData ? found : new HashSet<>(found);
    } else if (about instanceof MapMetaData) {
      Map<Object, Object> found = new HashMap<>();
      for (Map.Entry<String, JsonElement> one : json.getAsJsonObject().entrySet()) {
        found.put(value(new JsonPrimitive(one.getKey()), ((MapMetaData) about).keyMetaData), value(one.getValue(), ((MapMetaData) about).valueMetaData));
      }
      return found;
    }
    switch (about.type) {
      case TType.I64:
        return json.getAsLong();
      case TType.I32:
        return json.getAsInt();
      case TType.BOOL:
        return json.getAsBoolean();
      case TType.STRING:
        return about.isBinary() ? java.nio.ByteBuffer.wrap(Base64.getDecoder().decode(json.getAsString())) : json.getAsString();
      default:
        throw new IllegalArgumentException("no form for Thrift's type " + about.type);
    }
  }

  /** What an answer says of a value. */
  @SuppressWarnings({"unchecked", "rawtypes"})
  static JsonElement of(Object value) throws Exception {
    if (value == null) {
      return JsonNull.INSTANCE;
    } else if (value instanceof JsonElement) {
      return (JsonElement) value;
    } else if (value instanceof Number) {
      return new JsonPrimitive((Number) value);
    } else if (value instanceof Boolean) {
      return new JsonPrimitive((Boolean) value);
    } else if (value instanceof byte[]) {
      return new JsonPrimitive(Base64.getEncoder().encodeToString((byte[]) value));
    } else if (value instanceof java.nio.ByteBuffer) {
      java.nio.ByteBuffer copy = ((java.nio.ByteBuffer) value).duplicate();
      byte[] bytes = new byte[copy.remaining()];
      copy.get(bytes);
      return of(bytes);
    } else if (value instanceof Enum) {
      return new JsonPrimitive(((Enum) value).name());
    } else if (value instanceof ValidTxnList) {
      return new JsonPrimitive(((ValidTxnList) value).writeToString());
    } else if (value instanceof ValidWriteIdList) {
      return new JsonPrimitive(((ValidWriteIdList) value).writeToString());
    } else if (value instanceof Optional) {
      return of(((Optional<?>) value).orElse(null));
    } else if (value instanceof Collection) {
      JsonArray array = new JsonArray();
      for (Object one : (Collection<?>) value) {
        array.add(of(one));
      }
      return array;
    } else if (value instanceof Map) {
      JsonObject object = new JsonObject();
      for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
        object.add(String.valueOf(entry.getKey()), of(entry.getValue()));
      }
      return object;
    } else if (value instanceof TBase) {
      JsonObject object = new JsonObject();
      TBase struct = (TBase) value;
      for (Map.Entry<?, ?> entry : ((Map<?, ?>) FieldMetaData.getStructMetaDataMap((Class) struct.getClass())).entrySet()) {
        org.apache.thrift.TFieldIdEnum field = (org.apache.thrift.TFieldIdEnum) entry.getKey();
        if (struct.isSet(field)) {
          object.add(((FieldMetaData) entry.getValue()).fieldName, of(struct.getFieldValue(field)));
        }
      }
      return object;
    } else if (value.getClass().getName().startsWith("org.apache.hadoop.hive.metastore.txn.")) {
      JsonObject object = new JsonObject();
      for (Field field : value.getClass().getDeclaredFields()) {
        if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isFinal(field.getModifiers())) {
          field.setAccessible(true);
          object.add(field.getName(), of(field.get(value)));
        }
      }
      return object;
    }
    return new JsonPrimitive(value.toString());
  }

  /** Calls the public method of that name with as many parameters as there are arguments; several such: the first whose parameters can be bound. */
  static Object call(Class<?> type, Object target, String name, JsonArray args) throws Throwable {
    List<Exception> refused = new ArrayList<>();
    for (Method method : type.getMethods()) {
      if (!method.getName().equals(name) || method.getParameterCount() != args.size()) {
        continue;
      }
      Object[] bound = new Object[args.size()];
      try {
        for (int i = 0; i < bound.length; i++) {
          bound[i] = bind(args.get(i), method.getGenericParameterTypes()[i]);
        }
      } catch (ReflectiveOperationException | RuntimeException error) {
        refused.add(error);
        continue;
      }
      try {
        return method.invoke(target, bound);
      } catch (java.lang.reflect.InvocationTargetException error) {
        throw error.getCause();
      }
    }
    throw refused.isEmpty() ? new NoSuchMethodException(type.getSimpleName() + "." + name + " with " + args.size() + " arguments") : refused.get(0);
  }
}
