import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** One member of a consumer group: the same as compat_tests/groups/member.py, by Kafka's own Java client. */
public final class Member {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static volatile boolean stopping;

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        Thread input = new Thread(Member::awaitEndOfInput);
        input.setDaemon(true);
        input.start();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config(options), new StringDeserializer(), new StringDeserializer())) {
            String topic = options.get("topic");
            if (topic.startsWith("^")) {
                consumer.subscribe(Pattern.compile(topic));
            } else {
                consumer.subscribe(List.of(topic));
            }
            consume(consumer, options.getOrDefault("commit", "sync").equals("async"));
        }
        emit(JSON.createObjectNode().put("event", "closed"));
    }

    private static void awaitEndOfInput() {
        try {
            System.in.transferTo(java.io.OutputStream.nullOutputStream());
        } catch (IOException error) {
            System.err.println(error);
        }
        stopping = true;
    }

    private static Map<String, Object> config(Map<String, String> options) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", options.get("bootstrap"));
        config.put("group.id", options.get("group"));
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("metadata.max.age.ms", "500");
        if (options.containsKey("instance-id")) {
            config.put("group.instance.id", options.get("instance-id"));
        }
        if (options.getOrDefault("protocol", "classic").equals("consumer")) {
            config.put("group.protocol", "consumer");
        } else {
            int sessionTimeoutMs = Integer.parseInt(options.getOrDefault("session-timeout-ms", "6000"));
            boolean cooperative = options.getOrDefault("strategy", "range").equals("cooperative-sticky");
            config.put("session.timeout.ms", sessionTimeoutMs);
            config.put("heartbeat.interval.ms", sessionTimeoutMs / 10);
            config.put(
                    "partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer." + (cooperative ? "CooperativeSticky" : "Range") + "Assignor");
        }
        return config;
    }

    private static void consume(KafkaConsumer<String, String> consumer, boolean asynchronous) throws IOException {
        Set<TopicPartition> assigned = Set.of();
        while (!stopping) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (!consumer.assignment().equals(assigned)) {
                assigned = Set.copyOf(consumer.assignment());
                emitAssignment(assigned);
            }
            if (!records.isEmpty()) {
                emitRows(records);
                commit(consumer, asynchronous);
            }
        }
    }

    private static void commit(KafkaConsumer<String, String> consumer, boolean asynchronous) throws IOException {
        try {
            if (asynchronous) {
                consumer.commitAsync();
            } else {
                consumer.commitSync();
            }
        } catch (KafkaException error) {
            emit(JSON.createObjectNode().put("event", "refused").put("text", error.toString()));
        }
    }

    private static void emitAssignment(Set<TopicPartition> assigned) throws IOException {
        ObjectNode event = JSON.createObjectNode().put("event", "assigned");
        ArrayNode partitions = event.putArray("partitions");
        assigned.stream()
                .sorted(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
                .forEach(partition -> partitions.addArray().add(partition.topic()).add(partition.partition()));
        emit(event);
    }

    private static void emitRows(ConsumerRecords<String, String> records) throws IOException {
        ObjectNode event = JSON.createObjectNode().put("event", "rows");
        ArrayNode rows = event.putArray("rows");
        for (ConsumerRecord<String, String> record : records) {
            rows.addArray().add(record.topic()).add(record.partition()).add(record.offset()).add(record.value());
        }
        emit(event);
    }

    private static void emit(ObjectNode event) throws IOException {
        System.out.println(JSON.writeValueAsString(event));
        System.out.flush();
    }
}
