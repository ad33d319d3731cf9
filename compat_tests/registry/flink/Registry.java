// Apache Flink's format avro-confluent, and Confluent's client of a registry for Java, which is in its jar. A line of
// JSON for each call: {"name": call, "result": what came}. What is refused has Confluent's code as its result.

import java.util.List;
import java.util.concurrent.Callable;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecordBuilder;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;

public final class Registry {
  private static final String ID = "{\"name\": \"id\", \"type\": \"long\"}";
  private static final Schema ORDER = order(ID);
  private static final Schema WITH_NOTE = order(ID + ", {\"name\": \"note\", \"type\": \"string\", \"default\": \"none\"}");
  private static final Schema BROKEN = order("{\"name\": \"x\", \"type\": \"long\"}");

  private static final ObjectMapper JSON = new ObjectMapper();

  private static Schema order(String fields) {
    return new Schema.Parser().parse("{\"type\": \"record\", \"name\": \"Order\", \"fields\": [" + fields + "]}");
  }

  private static void show(String name, Callable<Object> call) throws Exception {
    Object result;
    try {
      result = call.call();
    } catch (Exception error) {
      Throwable cause = error;
      while (cause.getCause() != null && !(cause instanceof RestClientException)) {
        cause = cause.getCause();
      }
      result = cause instanceof RestClientException refused ? refused.getErrorCode() : String.valueOf(cause);
    }
    System.out.println(JSON.writeValueAsString(java.util.Map.of("name", name, "result", result)));
  }

  private static byte[] written(String url, Schema schema, GenericRecord value) {
    return ConfluentRegistryAvroSerializationSchema.forGeneric("java-value", schema, url).serialize(value);
  }

  private static String read(String url, Schema schema, byte[] bytes) throws Exception {
    return ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, url).deserialize(bytes).toString();
  }

  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    GenericRecord old = new GenericRecordBuilder(ORDER).set("id", 7L).build();
    GenericRecord young = new GenericRecordBuilder(WITH_NOTE).set("id", 8L).set("note", "soon").build();
    GenericRecord broken = new GenericRecordBuilder(BROKEN).set("x", 9L).build();
    show("first", () -> List.of(java.util.HexFormat.of().formatHex(written(url, ORDER, old)), read(url, ORDER, written(url, ORDER, old))));
    show("evolved", () -> List.of(read(url, WITH_NOTE, written(url, ORDER, old)), read(url, ORDER, written(url, WITH_NOTE, young))));
    show("incompatible", () -> written(url, BROKEN, broken));

    CachedSchemaRegistryClient client = new CachedSchemaRegistryClient(url, 100);
    show("versions", () -> client.getAllVersions("java-value"));
    show("known id", () -> client.getId("java-value", new AvroSchema(ORDER)));
    show("again", () -> client.register("java-value", new AvroSchema(WITH_NOTE)));
    show("by id", () -> client.getSchemaById(1).canonicalString());
    show("latest", () -> client.getLatestSchemaMetadata("java-value").getVersion());
    show("check", () -> client.testCompatibility("java-value", new AvroSchema(BROKEN)));
    show("why", () -> client.testCompatibilityVerbose("java-value", new AvroSchema(BROKEN)).size() > 0);
    SchemaReference reference = new SchemaReference("Order", "java-value", 2);
    String outer = "{\"type\": \"record\", \"name\": \"Outer\", \"fields\": [{\"name\": \"o\", \"type\": \"Order\"}]}";
    AvroSchema nested = new AvroSchema(outer, List.of(reference), java.util.Map.of("Order", WITH_NOTE.toString()), null);
    show("reference", () -> client.register("java-outer", nested));
    show("read with its reference", () -> new CachedSchemaRegistryClient(url, 100).getSchemaById(3).references().get(0).getSubject());
    show("referred to", () -> client.deleteSchemaVersion("java-value", "2"));
    show("level", () -> client.updateCompatibility("java-value", "FULL") + " " + client.getCompatibility("java-value"));
    show("mode", () -> client.setMode("READONLY", "java-value") + " " + client.getMode("java-value"));
    show("read only", () -> client.register("java-value", new AvroSchema(order(ID + ", {\"name\": \"y\", \"type\": \"int\", \"default\": 0}"))));
    show("of an id", () -> client.getAllVersionsById(1).iterator().next().getSubject());
    show("subjects", () -> client.getAllSubjects());
    show("missing", () -> client.getSchemaMetadata("nothing", 1));
    show("deleted", () -> client.deleteSubject("java-outer"));
  }
}
