import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Calls each method of Kafka's AdminClient once or more, in the order in which a web console or an operator would, and
 * prints a line {"name": call, "result": text} for each; a failure's text is its class and message.
 */
public final class Admin {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC = "admin";
    private static final TopicPartition FIRST = new TopicPartition(TOPIC, 0);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of(
                "bootstrap.servers", arguments[0],
                "default.api.timeout.ms", "60000",
                "request.timeout.ms", "50000");
        try (AdminClient admin = AdminClient.create(config)) {
            topics(admin);
            produce(arguments[0]);
            cluster(admin);
            configs(admin);
            partitions(admin);
            groups(admin);
            transactions(admin);
            quotas(admin);
            security(admin);
            ask("deleteTopics", () -> admin.deleteTopics(List.of(TOPIC, "nope")).topicNameValues());
            ask("metrics", () -> !admin.metrics().isEmpty());
        }
    }

    private static void topics(AdminClient admin) throws Exception {
        NewTopic topic = new NewTopic(TOPIC, 2, (short) 1).configs(Map.of("retention.ms", "600000"));
        NewTopic bad = new NewTopic("bad name", 1, (short) 1);
        NewTopic wide = new NewTopic("wide", 1, (short) 3);
        ask("createTopics", () -> admin.createTopics(List.of(topic, bad, wide)).values());
        ask("createTopics, validate only", () -> {
            CreateTopicsResult result =
                    admin.createTopics(List.of(new NewTopic("dry", Optional.empty(), Optional.empty())),
                            new CreateTopicsOptions().validateOnly(true));
            return result.numPartitions("dry").get() + " " + result.replicationFactor("dry").get();
        });
        ask("listTopics", () -> names(admin.listTopics().listings().get(), TopicListing::name));
        ask("listTopics, internal", () ->
                admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains(TOPIC));
        ask("describeTopics", () -> admin.describeTopics(List.of(TOPIC, "nope")).topicNameValues());
        ask("describeTopics, page by page", () -> admin.describeTopics(TopicCollection.ofTopicNames(List.of(TOPIC)),
                new DescribeTopicsOptions().partitionSizeLimitPerResponse(1)).allTopicNames());
        ask("describeTopics, what is allowed", () -> names(admin.describeTopics(List.of(TOPIC),
                new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().get(TOPIC)
                .authorizedOperations(), AclOperation::name));
        ask("describeTopics, unknown id", () ->
                admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 1)))).topicIdValues());
    }

    private static void produce(String bootstrap) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap, "linger.ms", "1"), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(TOPIC, 0, 1000L + i, "key", "value")).get();
            }
        }
    }

    private static void cluster(AdminClient admin) throws Exception {
        DescribeClusterOptions options = new DescribeClusterOptions().includeAuthorizedOperations(true);
        ask("describeCluster", () -> {
            DescribeClusterResult cluster = admin.describeCluster(options);
            return cluster.nodes().get() + " " + cluster.controller().get() + " "
                    + names(cluster.authorizedOperations().get(), AclOperation::name);
        });
        ask("describeFeatures", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().keySet()
                .containsAll(Set.of("group.version", "metadata.version", "transaction.version", "share.version")));
        ask("updateFeatures", () -> admin.updateFeatures(
                Map.of("nope", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
                new UpdateFeaturesOptions().validateOnly(true)).values());
        ask("describeMetadataQuorum", () -> {
            QuorumInfo info = admin.describeMetadataQuorum().quorumInfo().get();
            return info.leaderId() + " " + info.voters().size() + " " + info.observers() + " " + info.nodes().keySet();
        });
        ask("unregisterBroker", () -> admin.unregisterBroker(77).all().get());
        ask("describeLogDirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().stream()
                .map(dir -> dir.error() + " " + (dir.totalBytes().getAsLong() > 0) + " "
                        + dir.replicaInfos().containsKey(FIRST) + " " + dir.isCordoned())
                .toList());
        ask("describeReplicaLogDirs", () -> admin
                .describeReplicaLogDirs(List.of(new TopicPartitionReplica(TOPIC, 0, 1))).all().get().values().stream()
                .map(it -> it.getFutureReplicaLogDir() + " " + it.getCurrentReplicaOffsetLag()).toList());
        ask("alterReplicaLogDirs", () ->
                admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(TOPIC, 0, 1), "/nowhere")).all().get());
    }

    private static void configs(AdminClient admin) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "console");
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        ask("describeConfigs of a topic", () -> admin.describeConfigs(List.of(topic), all).all().get().get(topic)
                .get("retention.ms").synonyms());
        ask("describeConfigs of a broker", () -> admin.describeConfigs(List.of(broker), all).all().get().get(broker)
                .entries().stream().filter(it -> Set.of("log.cleaner.threads", "num.partitions").contains(it.name()))
                .map(it -> it.name() + it.value() + it.isReadOnly() + it.source() + it.type()).sorted().toList());
        ask("describeConfigs, documented", () -> admin.describeConfigs(List.of(topic), all).all().get().get(topic)
                .entries().stream().allMatch(it -> !it.documentation().isEmpty()));
        for (ConfigResource resource : List.of(topic, metrics)) {
            String name = resource == topic ? "max.message.bytes" : "interval.ms";
            ask("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(
                    resource, List.of(new AlterConfigOp(new ConfigEntry(name, "5000"), AlterConfigOp.OpType.SET)))).all()
                    .get());
        }
        ask("incrementalAlterConfigs, refused", () -> admin.incrementalAlterConfigs(Map.of(topic,
                List.of(new AlterConfigOp(new ConfigEntry("nope", "1"), AlterConfigOp.OpType.SET)))).all().get());
        ask("listConfigResources", () -> names(admin.listConfigResources().all().get(), it -> it.type() + it.name()));
        ask("listClientMetricsResources", () ->
                names(admin.listClientMetricsResources().all().get(), ClientMetricsResourceListing::name));
        ask("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(1)));
    }

    private static void partitions(AdminClient admin) throws Exception {
        ask("createPartitions", () -> admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(3))).all().get());
        ask("createPartitions, fewer", () -> admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(1))).all().get());
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
                OffsetSpec.forTimestamp(1003), OffsetSpec.earliestLocal(), OffsetSpec.latestTiered())) {
            ask("listOffsets " + spec.getClass().getSimpleName(), () -> admin.listOffsets(Map.of(FIRST, spec)).all().get());
        }
        ask("deleteRecords", () ->
                admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(FIRST).get()
                        .lowWatermark());
        ask("deleteRecords, beyond", () ->
                admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(400))).all().get());
        ask("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(FIRST)).partitions().get());
        ask("electLeaders, all", () -> admin.electLeaders(ElectionType.UNCLEAN, null).partitions().get());
        ask("alterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(
                FIRST, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        ask("alterPartitionReassignments, away", () -> admin.alterPartitionReassignments(Map.of(
                FIRST, Optional.of(new NewPartitionReassignment(List.of(2))))).all().get());
        ask("alterPartitionReassignments, cancel", () ->
                admin.alterPartitionReassignments(Map.of(FIRST, Optional.empty())).all().get());
        ask("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
        ask("describeProducers", () -> admin.describeProducers(List.of(FIRST)).partitionResult(FIRST).get()
                .activeProducers().stream().map(it -> it.lastSequence() + " " + it.currentTransactionStartOffset()).toList());
    }

    private static void groups(AdminClient admin) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(FIRST, new OffsetAndMetadata(7, "why"));
        ask("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("readers", offsets).all().get());
        ask("listConsumerGroupOffsets", () ->
                admin.listConsumerGroupOffsets("readers").partitionsToOffsetAndMetadata().get());
        ask("listGroups", () -> names(admin.listGroups().all().get(), GroupListing::toString));
        ask("listConsumerGroups", () -> admin.listConsumerGroups().all().get().size());
        ask("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of("readers", "nobody")).describedGroups());
        ask("describeClassicGroups", () -> admin.describeClassicGroups(List.of("readers", "nobody")).describedGroups());
        ask("removeMembersFromConsumerGroup", () ->
                admin.removeMembersFromConsumerGroup("readers", new RemoveMembersFromConsumerGroupOptions()).all().get());
        ask("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("readers", Set.of(FIRST)).all().get());
        ask("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("readers", "nobody")).deletedGroups());
    }

    private static void transactions(AdminClient admin) throws Exception {
        ask("fenceProducers", () -> admin.fenceProducers(List.of("fenced")).epochId("fenced").get());
        ask("listTransactions", () -> names(admin.listTransactions().all().get(),
                it -> it.transactionalId() + it.state()));
        ask("describeTransactions", () -> {
            TransactionDescription it = admin.describeTransactions(List.of("fenced")).description("fenced").get();
            return it.coordinatorId() + " " + it.state() + " " + it.producerEpoch() + " " + it.topicPartitions();
        });
        ask("describeTransactions, unknown", () -> admin.describeTransactions(List.of("none")).description("none").get());
        ask("abortTransaction", () ->
                admin.abortTransaction(new AbortTransactionSpec(FIRST, 12345, (short) 0, 0)).all().get());
        ask("forceTerminateTransaction", () -> admin.forceTerminateTransaction("fenced").result().get());
    }

    private static void quotas(AdminClient admin) throws Exception {
        ClientQuotaEntity ann = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "ann"));
        for (String key : List.of("producer_byte_rate", "nope")) {
            ask("alterClientQuotas " + key, () -> admin.alterClientQuotas(List.of(
                    new ClientQuotaAlteration(ann, List.of(new ClientQuotaAlteration.Op(key, 1000.0))))).all().get());
        }
        // Kafka's broker hears of a change from its controller a moment after that has answered.
        for (int tries = 0; tries < 100; tries++) {
            if (!admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().isEmpty()) {
                break;
            }
            Thread.sleep(100);
        }
        ask("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        ask("describeClientQuotas of a user", () -> admin.describeClientQuotas(ClientQuotaFilter.contains(
                List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, "ann")))).entities().get());
    }

    private static void security(AdminClient admin) throws Exception {
        AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL),
                new AccessControlEntry("User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW));
        ask("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        ask("createAcls", () -> admin.createAcls(List.of(acl)).all().get());
        ask("deleteAcls", () -> admin.deleteAcls(List.of(acl.toFilter())).all().get());
        ask("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        ask("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1}).expiryTimestamp().get());
        ask("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1}).expiryTimestamp().get());
        ask("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
        ask("describeUserScramCredentials, unknown", () -> admin.describeUserScramCredentials(List.of("nobody")).all().get());
        ask("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                "ann", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all().get());
        ask("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
    }

    private static <T> List<String> names(Collection<T> all, java.util.function.Function<T, String> name) {
        return all.stream().map(name).sorted().collect(Collectors.toList());
    }

    private static void ask(String name, Callable<?> call) throws Exception {
        System.out.println(JSON.writeValueAsString(Map.of("name", name, "result", answer(call))));
        System.out.flush();
    }

    private static String answer(Callable<?> call) throws Exception {
        try {
            Object result = call.call();
            if (result instanceof org.apache.kafka.common.KafkaFuture<?> future) {
                result = future.get();
            }
            if (result instanceof Map<?, ?> map) {
                TreeMap<String, String> sorted = new TreeMap<>();
                for (Map.Entry<?, ?> entry : map.entrySet()) {
                    Object value = entry.getValue();
                    sorted.put(String.valueOf(entry.getKey()),
                            value instanceof org.apache.kafka.common.KafkaFuture<?> it ? answer(it::get) : text(value));
                }
                return sorted.toString();
            }
            return text(result);
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }

    private static String text(Object value) {
        return value instanceof Optional<?> it ? it.map(Admin::text).orElse("empty") : String.valueOf(value);
    }
}
