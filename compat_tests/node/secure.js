// kafkajs sends one record and reads it, over TLS and SASL as it is told: one argument in JSON, see ../secure_clients.py.
"use strict";

const { readFileSync } = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const { bootstrap, topic, value, properties } = JSON.parse(process.argv[2]);
const file = (name) => properties[name] && readFileSync(properties[name]);

const kafka = new Kafka({
  clientId: "secure", brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 1, initialRetryTime: 50 },
  ssl: properties["security.protocol"].endsWith("SSL") &&
    { ca: [file("ssl.ca.location")], cert: file("ssl.certificate.location"), key: file("ssl.key.location") },
  sasl: properties["token"] ? {
    mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: properties["token"] }),
  } : properties["sasl.mechanism"] && {
    mechanism: properties["sasl.mechanism"].toLowerCase(),
    username: properties["sasl.username"], password: properties["sasl.password"],
  },
});

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `kafkajs-${topic}` });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const read = await new Promise((resolve) => consumer.run({ eachMessage: async ({ message }) => resolve(message.value) }));
  await consumer.disconnect();
  process.stdout.write(read);
}

main().catch((error) => {
  process.stderr.write(`${error.name}: ${error.message}`);
  process.exit(1);
});
