// KafkaJS' client of a schema registry: all three types registered, encoded and decoded. A line of JSON for each:
// {"name": type, "id": id, "value": decoded, "bytes": encoded in hexadecimal digits}; then one for what is refused.
"use strict";

const { SchemaRegistry, SchemaType, COMPATIBILITY } = require("@kafkajs/confluent-schema-registry");

const registry = new SchemaRegistry({ host: process.argv[2] }, { retry: { maxRetries: 0 } });
const print = (line) => console.log(JSON.stringify(line));

const schemas = [
  ["AVRO", SchemaType.AVRO, { type: "record", name: "Order", namespace: "shop", fields: [{ name: "id", type: "int" }] }],
  ["JSON", SchemaType.JSON, { title: "Order", type: "object", properties: { id: { type: "integer" } }, required: ["id"] }],
  ["PROTOBUF", SchemaType.PROTOBUF, 'syntax = "proto3"; package shop; message Order { int32 id = 1; }'],
];

const main = async () => {
  for (const [name, type, schema] of schemas) {
    const text = typeof schema === "string" ? schema : JSON.stringify(schema);
    const { id } = await registry.register({ type, schema: text }, { subject: `node-${name}`, compatibility: COMPATIBILITY.BACKWARD });
    const bytes = await registry.encode(id, { id: 7 });
    const latest = await registry.getLatestSchemaId(`node-${name}`);
    print({ name, id, latest, value: await registry.decode(bytes), bytes: bytes.toString("hex") });
  }
  // What the first schema wrote is read by the second, and a value of the second by whoever asks the registry.
  const young = structuredClone(schemas[0][2]);
  young.fields.push({ name: "note", type: "string", default: "none" });
  const old = await registry.encode(await registry.getLatestSchemaId("node-AVRO"), { id: 7 });
  const { id: evolved } = await registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(young) }, { subject: "node-AVRO" });
  const newer = await registry.encode(evolved, { id: 8, note: "soon" });
  print({
    name: "evolved",
    id: evolved,
    value: [await registry.decode(old, { [SchemaType.AVRO]: { readerSchema: young } }), await registry.decode(newer)],
  });
  const broken = { type: "record", name: "Order", namespace: "shop", fields: [{ name: "x", type: "int" }] };
  try {
    await registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(broken) }, { subject: "node-AVRO" });
    print({ name: "refused", value: null });
  } catch (error) {
    print({ name: "refused", value: error.status });
  }
};

main();
