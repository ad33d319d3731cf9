// The calls of kafkajs' admin client, in the order in which an operator would make them. A line of JSON for each:
// {"name": call, "result": text}; a failure's text is its type and message.
"use strict";

const { Kafka, logLevel, AclResourceTypes, AclOperationTypes, AclPermissionTypes, ResourcePatternTypes, ConfigResourceTypes } =
  require("kafkajs");

const topic = "kafkajs";
const kafka = new Kafka({
  clientId: "admin", brokers: process.argv[2].split(","), logLevel: logLevel.NOTHING, retry: { retries: 1, initialRetryTime: 50 },
});
const admin = kafka.admin();
const acl = {
  resourceType: AclResourceTypes.TOPIC, resourceName: topic, resourcePatternType: ResourcePatternTypes.LITERAL,
  principal: "User:ann", host: "*", operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW,
};

const inOrder = (values, ...fields) =>
  values.map((it) => fields.map((name) => `${name}=${JSON.stringify(it[name])}`).join(" ")).sort();

const calls = [
  ["listTopics", async () => (await admin.listTopics()).filter((name) => name === topic)],
  ["createTopics", () => admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1,
    configEntries: [{ name: "retention.ms", value: "600000" }] }] })],
  ["createTopics, again", () => admin.createTopics({ topics: [{ topic }] })],
  ["createTopics, wide", () => admin.createTopics({ topics: [{ topic: "wide", replicationFactor: 3 }] })],
  ["createPartitions", () => admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })],
  ["partitions", async () => {
    // Kafka answers before all of its metadata say so.
    for (let tries = 0; tries < 100; tries++) {
      const there = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
      if (there === 3) return there;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }],
  ["createPartitions, fewer", () => admin.createPartitions({ topicPartitions: [{ topic, count: 1 }] })],
  ["fetchTopicMetadata", async () => inOrder((await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions,
    "partitionId", "leader", "replicas", "isr", "offlineReplicas", "partitionErrorCode")],
  ["fetchTopicMetadata, unknown", () => admin.fetchTopicMetadata({ topics: ["nope"] })],
  ["produce", async () => {
    const producer = kafka.producer();
    await producer.connect();
    const messages = [1, 2, 3, 4].map((n) => ({ key: "k", value: `${n}`, partition: 0, timestamp: `${1000 + n}` }));
    const sent = await producer.send({ topic, messages });
    await producer.disconnect();
    return sent.map((it) => `${it.partition} ${it.errorCode} ${it.baseOffset}`);
  }],
  ["fetchTopicOffsets", async () => inOrder(await admin.fetchTopicOffsets(topic), "partition", "offset", "high", "low")],
  ["fetchTopicOffsetsByTimestamp", async () =>
    inOrder(await admin.fetchTopicOffsetsByTimestamp(topic, 1003), "partition", "offset")],
  ["deleteTopicRecords", () => admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "2" }] })],
  ["fetchTopicOffsets, after", async () => inOrder(await admin.fetchTopicOffsets(topic), "partition", "offset", "low")],
  ["setOffsets", () => admin.setOffsets({ groupId: "js", topic, partitions: [{ partition: 0, offset: "3" }] })],
  ["fetchOffsets", async () => (await admin.fetchOffsets({ groupId: "js", topics: [topic] })).map((it) =>
    `${it.topic} ${inOrder(it.partitions, "partition", "offset", "metadata")}`)],
  ["resetOffsets", () => admin.resetOffsets({ groupId: "js", topic, earliest: true })],
  ["listGroups", async () => inOrder((await admin.listGroups()).groups, "groupId", "protocolType")],
  ["describeGroups", async () => inOrder((await admin.describeGroups(["js", "nobody"])).groups,
    "errorCode", "groupId", "members", "protocol", "protocolType", "state")],
  ["deleteGroups", async () => inOrder(await admin.deleteGroups(["js"]), "groupId", "errorCode")],
  ["deleteGroups, unknown", () => admin.deleteGroups(["nobody"])],
  ["describeCluster", async () => {
    const { brokers, controller } = await admin.describeCluster();
    return `${controller} ${brokers.map((it) => `${it.nodeId} ${it.host}`)}`;
  }],
  ["describeConfigs", async () => inOrder((await admin.describeConfigs({ includeSynonyms: true, resources: [
    { type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms", "cleanup.policy"] }] })).resources[0]
    .configEntries, "configName", "configValue", "readOnly", "configSource", "isSensitive", "configSynonyms")],
  ["describeConfigs of a broker", async () => (await admin.describeConfigs({ resources: [
    { type: ConfigResourceTypes.BROKER, name: "1" }] })).resources[0].errorCode],
  ["alterConfigs", async () => (await admin.alterConfigs({ validateOnly: false, resources: [
    { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: "cleanup.policy", value: "compact" }] }] }))
    .resources],
  ["alterConfigs, refused", () => admin.alterConfigs({ validateOnly: false, resources: [
    { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: "nope", value: "1" }] }] })],
  ["alterPartitionReassignments", () => admin.alterPartitionReassignments({ topics: [
    { topic, partitionAssignment: [{ partition: 0, replicas: [1] }] }] })],
  ["listPartitionReassignments", () => admin.listPartitionReassignments()],
  ["describeAcls", () => admin.describeAcls({ ...acl, principal: undefined, host: undefined })],
  ["createAcls", () => admin.createAcls({ acl: [acl] })],
  ["deleteAcls", () => admin.deleteAcls({ filters: [acl] })],
  ["deleteTopics", () => admin.deleteTopics({ topics: [topic] })],
  ["deleteTopics, unknown", () => admin.deleteTopics({ topics: ["nope"] })],
];

async function main() {
  await admin.connect();
  for (const [name, call] of calls) {
    let result;
    try {
      result = JSON.stringify(await call()) ?? "nothing";
    } catch (error) {
      result = `${error.type ?? error.name}: ${error.message}`;
    }
    process.stdout.write(JSON.stringify({ name, result }) + "\n");
  }
  await admin.disconnect();
}

main();
