import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client behind a line protocol: one JSON request a line on standard input, one JSON answer a line on
 * standard output. It saves every scenario the start of a JVM. A failed request answers {"error": code, "text": …} with
 * Kafka's error code.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<Integer, OpenConsumer> consumers = new HashMap<>();
    private final Map<Integer, OpenShareConsumer> shareConsumers = new HashMap<>();

    /** A consumer of one partition, and what it polled beyond what was asked for. */
    private record OpenConsumer(
            KafkaConsumer<byte[], byte[]> consumer, ArrayDeque<ConsumerRecord<byte[], byte[]>> ready) {}

    /** A member of a share group, and the records of its last poll by topic, partition and offset. */
    private record OpenShareConsumer(
            KafkaShareConsumer<byte[], byte[]> consumer, Map<String, ConsumerRecord<byte[], byte[]>> polled) {}

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                driver.answer(JSON.readTree(line), answer);
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.removeAll();
                answer.put("error", (int) Errors.forException(cause).code()).put("text", cause.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
        System.exit(0);
    }

    private void answer(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("op").asText()) {
            case "open_producer" -> producers.put(
                    request.get("id").asInt(),
                    new KafkaProducer<>(config(request), new ByteArraySerializer(), new ByteArraySerializer()));
            case "send" -> send(request, answer);
            case "init_transactions", "begin_transaction", "send_offsets", "commit_transaction", "abort_transaction" ->
                transact(request);
            case "open_consumer" -> openConsumer(request);
            case "take" -> take(request, answer);
            case "await_end" -> awaitEnd(request);
            case "open_share_consumer" -> openShareConsumer(request);
            case "poll_share" -> pollShare(request, answer);
            case "acknowledge_share" -> acknowledgeShare(request, answer);
            case "close" -> close(request.get("id").asInt());
            case "create_topic", "add_partitions", "delete_topic", "topics" -> administer(request, answer);
            case "commit", "committed" -> commitOrFetch(request, answer);
            default -> throw new IllegalArgumentException("unknown operation " + request);
        }
    }

    private static Map<String, Object> config(JsonNode request) {
        Map<String, Object> config = new HashMap<>();
        request.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        return config;
    }

    private static TopicPartition topicPartition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private void send(JsonNode request, ObjectNode answer) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(request.get("id").asInt());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : request.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.get("headers")) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            JsonNode timestamp = record.get("timestamp_ms");
            sent.add(producer.send(new ProducerRecord<>(
                    request.get("topic").asText(),
                    record.get("partition").asInt(),
                    timestamp.isNull() ? null : timestamp.asLong(),
                    bytes(record.get("key")),
                    bytes(record.get("value")),
                    headers)));
        }
        producer.flush();
        ArrayNode offsets = answer.putArray("offsets");
        for (Future<RecordMetadata> future : sent) {
            offsets.add(future.get().offset());
        }
    }

    private void transact(JsonNode request) {
        KafkaProducer<byte[], byte[]> producer = producers.get(request.get("id").asInt());
        switch (request.get("op").asText()) {
            case "init_transactions" -> producer.initTransactions();
            case "begin_transaction" -> producer.beginTransaction();
            case "commit_transaction" -> producer.commitTransaction();
            case "abort_transaction" -> producer.abortTransaction();
            default -> {
                String topic = request.get("topic").asText();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                request.get("offsets").fields().forEachRemaining(entry -> offsets.put(
                        new TopicPartition(topic, Integer.parseInt(entry.getKey())),
                        new OffsetAndMetadata(entry.getValue().asLong())));
                producer.sendOffsetsToTransaction(
                        offsets, new ConsumerGroupMetadata(request.get("group").asText()));
            }
        }
    }

    private void openConsumer(JsonNode request) {
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config(request), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        TopicPartition partition = topicPartition(request);
        List<TopicPartition> partitions = List.of(partition);
        consumer.assign(partitions);
        long at = request.get("at").asLong();
        switch (request.get("kind").asText()) {
            case "beginning" -> consumer.seekToBeginning(partitions);
            case "end" -> consumer.seekToEnd(partitions);
            case "offset" -> consumer.seek(partition, at);
            default -> {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, at)).get(partition);
                if (found == null) {
                    consumer.seekToEnd(partitions);
                } else {
                    consumer.seek(partition, found.offset());
                }
            }
        }
        consumer.position(partition);
        consumers.put(request.get("id").asInt(), new OpenConsumer(consumer, new ArrayDeque<>()));
    }

    private void take(JsonNode request, ObjectNode answer) throws Exception {
        OpenConsumer open = consumers.get(request.get("id").asInt());
        int count = request.get("count").asInt();
        long deadline = System.nanoTime() + request.get("timeout_ms").asLong() * 1_000_000;
        while (open.ready().size() < count && System.nanoTime() < deadline) {
            open.consumer().poll(Duration.ofNanos(deadline - System.nanoTime())).forEach(open.ready()::add);
        }
        ArrayNode records = answer.putArray("records");
        for (int taken = 0; taken < count && !open.ready().isEmpty(); taken++) {
            describe(open.ready().remove(), records.addObject());
        }
    }

    /** Polls until the consumer stands at the end of its partition; what comes on the way is kept for `take`. */
    private void awaitEnd(JsonNode request) throws Exception {
        OpenConsumer open = consumers.get(request.get("id").asInt());
        TopicPartition partition = open.consumer().assignment().iterator().next();
        long end = open.consumer().endOffsets(List.of(partition)).get(partition);
        long deadline = System.nanoTime() + request.get("timeout_ms").asLong() * 1_000_000;
        while (open.consumer().position(partition) != end) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("the end of the partition was not reached");
            }
            open.consumer().poll(Duration.ofMillis(50)).forEach(open.ready()::add);
        }
    }

    private static void describe(ConsumerRecord<byte[], byte[]> record, ObjectNode described) {
        described.put("partition", record.partition()).put("offset", record.offset());
        described.put("timestamp_ms", record.timestamp());
        described.put("log_append_time", record.timestampType() == TimestampType.LOG_APPEND_TIME);
        described.put("key", record.key()).put("value", record.value());
        ArrayNode headers = described.putArray("headers");
        record.headers().forEach(header -> headers.addArray().add(header.key()).add(header.value()));
    }

    private void openShareConsumer(JsonNode request) {
        KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(config(request), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<String> topics = new ArrayList<>();
        request.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics);
        shareConsumers.put(request.get("id").asInt(), new OpenShareConsumer(consumer, new HashMap<>()));
    }

    private void pollShare(JsonNode request, ObjectNode answer) {
        ArrayNode records = answer.putArray("records");
        OpenShareConsumer open = shareConsumers.get(request.get("id").asInt());
        open.polled().clear();
        open.consumer().poll(Duration.ofMillis(request.get("timeout_ms").asLong())).forEach(record -> {
            open.polled().put(place(record.topic(), record.partition(), record.offset()), record);
            ObjectNode described = records.addObject();
            describe(record, described);
            described.put("topic", record.topic());
            described.put("delivery_count", record.deliveryCount().map(Short::intValue).orElse(0));
        });
    }

    private static String place(String topic, int partition, long offset) {
        return topic + "-" + partition + "-" + offset;
    }

    /** Acknowledges records of the last poll, if any are named, and commits; with explicit acknowledgement only. */
    private void acknowledgeShare(JsonNode request, ObjectNode answer) {
        OpenShareConsumer open = shareConsumers.get(request.get("id").asInt());
        for (JsonNode record : request.get("records")) {
            String place = place(
                    record.get("topic").asText(),
                    record.get("partition").asInt(),
                    record.get("offset").asLong());
            open.consumer().acknowledge(open.polled().get(place), AcknowledgeType.valueOf(record.get("type").asText()));
        }
        ObjectNode outcomes = answer.putObject("outcomes");
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> outcome :
                open.consumer().commitSync().entrySet()) {
            outcomes.put(
                    outcome.getKey().topic() + "-" + outcome.getKey().partition(),
                    outcome.getValue()
                            .map(error -> (int) Errors.forException(error).code())
                            .orElse(0));
        }
    }

    private void close(int id) {
        Optional.ofNullable(shareConsumers.remove(id)).ifPresent(open -> open.consumer().close());
        Optional.ofNullable(producers.remove(id)).ifPresent(KafkaProducer::close);
        Optional.ofNullable(consumers.remove(id)).ifPresent(open -> open.consumer().close());
    }

    private static void administer(JsonNode request, ObjectNode answer) throws Exception {
        String topic = request.path("topic").asText();
        int partitions = request.path("partitions").asInt();
        try (Admin admin = Admin.create(config(request))) {
            switch (request.get("op").asText()) {
                case "create_topic" -> {
                    Map<String, String> configs = new HashMap<>();
                    request.get("configs")
                            .fields()
                            .forEachRemaining(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
                    NewTopic created = new NewTopic(topic, partitions, (short) 1).configs(configs);
                    admin.createTopics(List.of(created)).all().get();
                }
                case "add_partitions" -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(partitions)))
                        .all()
                        .get();
                case "delete_topic" -> admin.deleteTopics(List.of(topic)).all().get();
                default -> {
                    ObjectNode topics = answer.putObject("topics");
                    for (TopicDescription described : admin.describeTopics(
                                    admin.listTopics().names().get())
                            .allTopicNames()
                            .get()
                            .values()) {
                        topics.put(described.name(), described.partitions().size());
                    }
                }
            }
        }
    }

    private static void commitOrFetch(JsonNode request, ObjectNode answer) {
        TopicPartition partition = topicPartition(request);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config(request), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            if (request.get("op").asText().equals("commit")) {
                long offset = request.get("offset").asLong();
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(offset)));
            } else {
                OffsetAndMetadata found = consumer.committed(Collections.singleton(partition)).get(partition);
                answer.put("offset", found == null ? null : (Long) found.offset());
            }
        }
    }

    private static byte[] bytes(JsonNode encoded) throws Exception {
        return encoded.isNull() ? null : encoded.binaryValue();
    }
}
