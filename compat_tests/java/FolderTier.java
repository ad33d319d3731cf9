import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Tiered storage of Apache Kafka in a folder (`rsm.config.folder`), which has one folder of files for each segment. */
public class FolderTier implements RemoteStorageManager {
    private Path root;

    @Override
    public void configure(Map<String, ?> configs) {
        root = Path.of((String) configs.get("folder"));
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        try {
            Path folder = Files.createDirectories(folder(segment));
            Files.write(folder.resolve("log"), Files.readAllBytes(data.logSegment()));
            Files.write(folder.resolve(IndexType.OFFSET.name()), Files.readAllBytes(data.offsetIndex()));
            Files.write(folder.resolve(IndexType.TIMESTAMP.name()), Files.readAllBytes(data.timeIndex()));
            Files.write(folder.resolve(IndexType.PRODUCER_SNAPSHOT.name()), Files.readAllBytes(data.producerSnapshotIndex()));
            if (data.transactionIndex().isPresent()) {
                Files.write(folder.resolve(IndexType.TRANSACTION.name()), Files.readAllBytes(data.transactionIndex().get()));
            }
            ByteBuffer epochs = data.leaderEpochIndex().duplicate();
            byte[] content = new byte[epochs.remaining()];
            epochs.get(content);
            Files.write(folder.resolve(IndexType.LEADER_EPOCH.name()), content);
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
        return Optional.empty();
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE - 1);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int last)
            throws RemoteStorageException {
        byte[] content = read(segment, "log");
        return new ByteArrayInputStream(Arrays.copyOfRange(content, start, Math.min(content.length, last + 1)));
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        return new ByteArrayInputStream(read(segment, type.name()));
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        try (Stream<Path> files = Files.list(folder(segment))) {
            for (Path file : files.toList()) {
                Files.delete(file);
            }
            Files.delete(folder(segment));
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public void close() {}

    private Path folder(RemoteLogSegmentMetadata segment) {
        return root.resolve(segment.remoteLogSegmentId().id().toString());
    }

    private byte[] read(RemoteLogSegmentMetadata segment, String name) throws RemoteStorageException {
        try {
            return Files.readAllBytes(folder(segment).resolve(name));
        } catch (IOException error) {
            throw new RemoteResourceNotFoundException(error);
        }
    }
}
