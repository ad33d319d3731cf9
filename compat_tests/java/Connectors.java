import java.io.FileWriter;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source and a sink for Kafka Connect, of which it can be told whether everything came, and how often. */
public final class Connectors {
    private static final ConfigDef CONFIG = new ConfigDef()
            .define("topic", ConfigDef.Type.STRING, "", ConfigDef.Importance.HIGH, "where numbers go")
            .define("count", ConfigDef.Type.INT, 0, ConfigDef.Importance.HIGH, "how many numbers each task sends")
            .define("file", ConfigDef.Type.STRING, "", ConfigDef.Importance.HIGH, "where records are written");

    private static List<Map<String, String>> numbered(Map<String, String> settings, int tasks) {
        return IntStream.range(0, tasks).mapToObj(number -> {
            Map<String, String> own = new java.util.HashMap<>(settings);
            own.put("task", Integer.toString(number));
            return own;
        }).collect(Collectors.toList());
    }

    /** Each task sends the numbers from 0 to `count` to the partition with its own number, a few at a time. */
    public static final class Numbers extends SourceConnector {
        private Map<String, String> settings;

        @Override public void start(Map<String, String> given) { settings = given; }
        @Override public Class<? extends Task> taskClass() { return NumbersTask.class; }
        @Override public List<Map<String, String>> taskConfigs(int most) { return numbered(settings, most); }
        @Override public void stop() { }
        @Override public ConfigDef config() { return CONFIG; }
        @Override public String version() { return "1"; }
        @Override public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> given) {
            return ExactlyOnceSupport.SUPPORTED;
        }
    }

    public static final class NumbersTask extends SourceTask {
        private static final int AT_ONCE = 20;
        private Map<String, String> settings;
        private Map<String, String> partition;
        private long next;

        @Override public void start(Map<String, String> given) {
            settings = given;
            partition = Collections.singletonMap("task", given.get("task"));
            Map<String, Object> stored = context.offsetStorageReader().offset(partition);
            next = stored == null ? 0 : (Long) stored.get("next");
        }

        @Override public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(50);
            List<SourceRecord> records = new ArrayList<>();
            long end = Math.min(next + AT_ONCE, Long.parseLong(settings.get("count")));
            for (; next < end; next++) {
                records.add(new SourceRecord(partition, Collections.singletonMap("next", next + 1), settings.get("topic"),
                        Integer.valueOf(settings.get("task")), Schema.STRING_SCHEMA, settings.get("task"),
                        Schema.STRING_SCHEMA, Long.toString(next)));
            }
            return records.isEmpty() ? null : records;
        }

        @Override public void stop() { }
        @Override public String version() { return "1"; }
    }

    /** Appends a line for each record to a file: its partition, its offset, its value. */
    public static final class Lines extends SinkConnector {
        private Map<String, String> settings;

        @Override public void start(Map<String, String> given) { settings = given; }
        @Override public Class<? extends Task> taskClass() { return LinesTask.class; }
        @Override public List<Map<String, String>> taskConfigs(int most) { return numbered(settings, most); }
        @Override public void stop() { }
        @Override public ConfigDef config() { return CONFIG; }
        @Override public String version() { return "1"; }
    }

    public static final class LinesTask extends SinkTask {
        private String file;

        @Override public void start(Map<String, String> given) { file = given.get("file"); }
        @Override public void put(Collection<SinkRecord> records) {
            StringBuilder lines = new StringBuilder();
            for (SinkRecord record : records) {
                lines.append(record.kafkaPartition()).append(' ').append(record.kafkaOffset()).append(' ')
                        .append(record.value()).append('\n');
            }
            // One write a batch: several tasks append to the same file.
            try (FileWriter writer = new FileWriter(file, true)) {
                writer.write(lines.toString());
            } catch (IOException error) {
                throw new ConnectException(error);
            }
        }

        @Override public void stop() { }
        @Override public String version() { return "1"; }
    }
}
