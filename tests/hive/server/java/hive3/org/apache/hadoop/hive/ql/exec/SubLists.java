package org.apache.hadoop.hive.ql.exec;

import java.util.ArrayList;
import java.util.List;
import org.apache.hive.com.esotericsoftware.kryo.Kryo;
import org.apache.hive.com.esotericsoftware.kryo.Serializer;
import org.apache.hive.com.esotericsoftware.kryo.io.Input;
import org.apache.hive.com.esotericsoftware.kryo.io.Output;

/** In the place of Hive 3.1's class of this name, which asks for fields that ArrayList's sublists have on Java 8 only: writes the elements. */
class SerializationUtilities$ArrayListSubListSerializer extends Serializer<List<?>> {
  public SerializationUtilities$ArrayListSubListSerializer() {}

  @Override public void write(Kryo kryo, Output output, List<?> list) {
    output.writeInt(list.size(), true);
    for (Object element : list) {
      kryo.writeClassAndObject(output, element);
    }
  }

  @Override public List<?> read(Kryo kryo, Input input, Class<List<?>> type) {
    int size = input.readInt(true);
    List<Object> list = new ArrayList<>(size);
    kryo.reference(list);
    for (int i = 0; i < size; i++) {
      list.add(kryo.readClassAndObject(input));
    }
    return list;
  }

  @Override public List<?> copy(Kryo kryo, List<?> list) {
    List<Object> copies = new ArrayList<>(list.size());
    kryo.reference(copies);
    for (Object element : list) {
      copies.add(kryo.copy(element));
    }
    return copies;
  }
}
