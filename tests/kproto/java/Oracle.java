// Apache Kafka's own codecs behind a pipe, for the tests beside this file.
//
// A request on standard input is a length (int32) and: an operation (a byte), a message name (DataOutput's UTF), a version
// (int16) and the content. The answer on standard output is a length, a status byte (0, or 1 with an error's text), and
// the result. Run with Kafka's jars on the class path: java --class-path '.jars/kafka-4.4/*' Oracle.java

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.ImplicitLinkedHashCollection;
import org.apache.kafka.common.utils.Utils;

public class Oracle {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
    };
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Class<?>> CLASSES = new HashMap<>();
    private static final Map<Class<?>, Method> CONVERTERS = new HashMap<>();

    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            byte[] request;
            try {
                request = in.readNBytes(in.readInt());
            } catch (EOFException end) {
                return;
            }
            byte[] answer = answer(request);
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    private static byte[] answer(byte[] request) {
        ByteArrayOutputStream result = new ByteArrayOutputStream();
        try {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(request));
            byte operation = in.readByte();
            String name = in.readUTF();
            short version = in.readShort();
            byte[] content = in.readAllBytes();
            result.write(0);
            switch (operation) {
                case 'M' -> result.write(recodeMessage(name, version, content));
                case 'D' -> result.write(JSON.writeValueAsBytes(defaults(CLASSES.computeIfAbsent(name, Oracle::find))));
                case 'B' -> result.write(buildBatch(JSON.readTree(content)));
                case 'R' -> result.write(JSON.writeValueAsBytes(readBatches(content)));
                case 'E' -> result.write(buildMarker(JSON.readTree(content)));
                default -> throw new IllegalArgumentException("operation " + operation);
            }
        } catch (Throwable error) {
            Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
            result.reset();
            result.write(1);
            result.writeBytes(cause.toString().getBytes(StandardCharsets.UTF_8));
        }
        return result.toByteArray();
    }

    /** What Java makes of an encoded message: its own encoding (after its length), then its content as JSON. */
    private static byte[] recodeMessage(String name, short version, byte[] encoded) throws Exception {
        Class<?> type = CLASSES.computeIfAbsent(name, Oracle::find);
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(encoded));
        message.read(readable, version);
        if (readable.remaining() != 0) {
            throw new IllegalStateException(readable.remaining() + " bytes are left over");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBufferAccessor writable = new ByteBufferAccessor(ByteBuffer.allocate(message.size(cache, version)));
        message.write(writable, cache, version);
        JsonNode content = (JsonNode) converter(type).invoke(null, message, version, false);
        ByteArrayOutputStream result = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(result);
        byte[] recoded = writable.buffer().array();
        out.writeInt(recoded.length);
        out.write(recoded);
        out.write(JSON.writeValueAsBytes(content));
        return result.toByteArray();
    }

    /** What a new message and each of its nested structs hold, by the structs' names. */
    private static ObjectNode defaults(Class<?> type) throws Exception {
        ObjectNode result = JSON.createObjectNode();
        addDefaults(type, result);
        for (Class<?> nested : type.getDeclaredClasses()) {
            if (Message.class.isAssignableFrom(nested)) {
                addDefaults(nested, result);
            }
        }
        return result;
    }

    private static void addDefaults(Class<?> type, ObjectNode result) throws Exception {
        ObjectNode fields = result.putObject(type.getSimpleName());
        Object fresh = type.getDeclaredConstructor().newInstance();
        for (Field field : type.getDeclaredFields()) {
            boolean isLink = fresh instanceof ImplicitLinkedHashCollection.Element && field.getName().matches("prev|next");
            if (Modifier.isStatic(field.getModifiers()) || field.getName().startsWith("_") || isLink) {
                continue;
            }
            field.setAccessible(true);
            Object value = field.get(fresh);
            if (value == null || value instanceof Number || value instanceof Boolean || value instanceof String) {
                fields.set(field.getName(), JSON.valueToTree(value));
            } else if (value instanceof Uuid) {
                fields.put(field.getName(), value.toString());
            } else if (value instanceof Message) {
                fields.put(field.getName(), "struct");
            } else {
                fields.put(field.getName(), "empty");
            }
        }
    }

    private static Class<?> find(String name) {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException missing) {
                    continue;
                }
            }
        }
        throw new IllegalArgumentException("no class for " + name);
    }

    private static Method converter(Class<?> type) throws Exception {
        Method found = CONVERTERS.get(type);
        if (found == null) {
            found = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class, boolean.class);
            CONVERTERS.put(type, found);
        }
        return found;
    }

    private static byte[] buildBatch(JsonNode wanted) throws IOException {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 20),
            (byte) 2,
            compression(wanted),
            TimestampType.CREATE_TIME,
            wanted.get("base_offset").asLong(),
            -1L,
            wanted.get("producer_id").asLong(),
            (short) wanted.get("producer_epoch").asInt(),
            wanted.get("base_sequence").asInt(),
            wanted.get("is_transactional").asBoolean(),
            wanted.get("leader_epoch").asInt());
        for (JsonNode record : wanted.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.get("headers")) {
                headers.add(new RecordHeader(header.get(0).asText(), binary(header.get(1))));
            }
            builder.append(
                record.get("timestamp_ms").asLong(),
                binary(record.get("key")),
                binary(record.get("value")),
                headers.toArray(new Header[0]));
        }
        return Utils.toArray(builder.build().buffer());
    }

    private static Compression compression(JsonNode wanted) {
        JsonNode level = wanted.get("level");
        return switch (wanted.get("compression").asText()) {
            case "GZIP" -> level.isNull() ? Compression.gzip().build() : Compression.gzip().level(level.asInt()).build();
            case "LZ4" -> level.isNull() ? Compression.lz4().build() : Compression.lz4().level(level.asInt()).build();
            case "ZSTD" -> level.isNull() ? Compression.zstd().build() : Compression.zstd().level(level.asInt()).build();
            case "SNAPPY" -> Compression.snappy().build();
            default -> Compression.none().build();
        };
    }

    private static byte[] binary(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }

    private static ArrayNode readBatches(byte[] encoded) {
        ArrayNode result = JSON.createArrayNode();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(encoded)).batches()) {
            batch.ensureValid();
            ObjectNode read = result.addObject();
            read.put("base_offset", batch.baseOffset());
            read.put("last_offset", batch.lastOffset());
            read.put("leader_epoch", batch.partitionLeaderEpoch());
            read.put("crc", batch.checksum());
            read.put("compression", batch.compressionType().toString().toUpperCase());
            read.put("timestamp_type", batch.timestampType().id);
            read.put("max_timestamp_ms", batch.maxTimestamp());
            read.put("producer_id", batch.producerId());
            read.put("producer_epoch", batch.producerEpoch());
            read.put("base_sequence", batch.baseSequence());
            read.put("last_sequence", batch.lastSequence());
            read.put("is_transactional", batch.isTransactional());
            read.put("is_control", batch.isControlBatch());
            read.put("record_count", batch.countOrNull());
            if (batch.deleteHorizonMs().isPresent()) {
                read.put("delete_horizon_ms", batch.deleteHorizonMs().getAsLong());
            } else {
                read.putNull("delete_horizon_ms");
            }
            ArrayNode records = read.putArray("records");
            for (Record record : batch) {
                record.ensureValid();
                ObjectNode entry = records.addObject();
                entry.put("offset", record.offset());
                entry.put("timestamp_ms", record.timestamp());
                entry.put("key", record.hasKey() ? Utils.toArray(record.key()) : null);
                entry.put("value", record.hasValue() ? Utils.toArray(record.value()) : null);
                ArrayNode headers = entry.putArray("headers");
                for (Header header : record.headers()) {
                    headers.addArray().add(header.key()).add(header.value());
                }
            }
        }
        return result;
    }

    private static byte[] buildMarker(JsonNode wanted) {
        ControlRecordType type = wanted.get("is_commit").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        EndTransactionMarker marker = new EndTransactionMarker(type, wanted.get("coordinator_epoch").asInt());
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(
            wanted.get("base_offset").asLong(),
            wanted.get("timestamp_ms").asLong(),
            wanted.get("leader_epoch").asInt(),
            wanted.get("producer_id").asLong(),
            (short) wanted.get("producer_epoch").asInt(),
            marker);
        return Utils.toArray(records.buffer());
    }
}
