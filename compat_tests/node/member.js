// One member of a consumer group: the same as compat_tests/groups/member.py, by kafkajs.
//
// kafkajs knows neither static members nor cooperative ones, so --strategy is range and there is no --instance-id; its
// own assignor (round robin) does as well. --seek-to N goes back to that offset in every partition it is assigned.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const options = { "session-timeout-ms": "6000" };
for (let i = 2; i + 1 < process.argv.length; i += 2) {
  options[process.argv[i].slice(2)] = process.argv[i + 1];
}

function emit(event, values) {
  process.stdout.write(JSON.stringify({ event, ...values }) + "\n");
}

const sessionTimeout = Number(options["session-timeout-ms"]);
const kafka = new Kafka({ clientId: "kafkajs", brokers: options.bootstrap.split(","), logLevel: logLevel.NOTHING });
const consumer = kafka.consumer({
  groupId: options.group,
  sessionTimeout,
  rebalanceTimeout: 10000,
  heartbeatInterval: sessionTimeout / 10,
  metadataMaxAge: 500,
  maxWaitTimeInMs: 100,
});

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  const partitions = Object.entries(payload.memberAssignment).flatMap(([topic, numbers]) =>
    numbers.map((number) => [topic, number]),
  );
  emit("assigned", { partitions });
  if (options["seek-to"] !== undefined) {
    partitions.forEach(([topic, partition]) => consumer.seek({ topic, partition, offset: options["seek-to"] }));
    delete options["seek-to"];
  }
});

async function take({ batch, resolveOffset, isRunning, isStale }) {
  if (!isRunning() || isStale() || batch.isEmpty()) {
    return;
  }
  const { topic, partition } = batch;
  emit("rows", { rows: batch.messages.map((m) => [topic, partition, Number(m.offset), m.value.toString()]) });
  resolveOffset(batch.lastOffset());
  const committed = consumer.commitOffsets([{ topic, partition, offset: String(BigInt(batch.lastOffset()) + 1n) }]);
  const settled = committed.catch((error) => emit("refused", { text: String(error) }));
  if (options.commit !== "async") {
    await settled;
  }
}

async function main() {
  await consumer.connect();
  const topic = options.topic.startsWith("^") ? new RegExp(options.topic) : options.topic;
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: take });
  process.stdin.resume();
  process.stdin.on("end", async () => {
    await consumer.disconnect();
    emit("closed", {});
    process.exit(0);
  });
}

main();
