// Confluent's client of a schema registry for Node.js, with its serializers of all three types. A line of JSON for each
// call: {"name": call, "result": what came}. Of what is refused, the result is Confluent's code.
"use strict";

const { create } = require("@bufbuild/protobuf");
const { TypeSchema } = require("@bufbuild/protobuf/wkt");
const registry = require("@confluentinc/schemaregistry");

const field = (name, rest) => ({ name, type: "long", ...rest });
const order = (...fields) => ({ schemaType: "AVRO", schema: JSON.stringify({ type: "record", name: "Order", fields }) });
const ORDER = order(field("id"));
const WITH_NOTE = order(field("id"), field("note", { default: 0 }));
const BROKEN = order(field("x"));
const JSON_SCHEMA = {
  schemaType: "JSON",
  schema: JSON.stringify({ title: "Order", type: "object", properties: { id: { type: "integer" } }, required: ["id"] }),
};
const NEWEST = { autoRegisterSchemas: false, useLatestVersion: true };

const show = async (name, call) => {
  let result;
  try {
    result = await call();
  } catch (error) {
    result = error.errorCode ?? String(error);
  }
  console.log(JSON.stringify({ name, result }));
};

const main = async () => {
  const config = { baseURLs: [process.argv[2]], maxRetries: 0 };
  const client = registry.SchemaRegistryClient.newClient(config);
  const writer = (Serializer, settings) => new Serializer(client, registry.SerdeType.VALUE, settings);
  const { AvroSerializer, AvroDeserializer, JsonSerializer, JsonDeserializer } = registry;

  await show("register", () => client.register("avro-value", ORDER));
  const avro = await writer(AvroSerializer, NEWEST).serialize("avro", { id: 7 });
  await show("avro", async () => [avro.toString("hex"), await writer(AvroDeserializer, {}).deserialize("avro", avro)]);
  await show("evolve", () => client.register("avro-value", WITH_NOTE));
  client.clearCaches();
  await show("read by the newest", () => writer(AvroDeserializer, { useLatestVersion: true }).deserialize("avro", avro));
  await show("incompatible", () => client.register("avro-value", BROKEN));
  await show("check", () => client.testSubjectCompatibility("avro-value", BROKEN));

  await client.register("json-value", JSON_SCHEMA);
  const json = await writer(JsonSerializer, { ...NEWEST, validate: true }).serialize("json", { id: 7 });
  await show("json", async () => [json.toString("hex", 0, 5), await writer(JsonDeserializer, {}).deserialize("json", json)]);
  const type = create(TypeSchema, { name: "n" });
  const protobuf = writer(registry.ProtobufSerializer, { autoRegisterSchemas: true });
  protobuf.registry.add(TypeSchema);
  await show("protobuf", async () => {
    const bytes = await protobuf.serialize("protobuf", type);
    const read = await writer(registry.ProtobufDeserializer, {}).deserialize("protobuf", bytes);
    return [bytes.toString("hex", 5), read.name];
  });

  const made = await client.registerFullResponse("avro-value", WITH_NOTE);
  await show("by guid", async () => (await client.getByGuid(made.guid)).schema === WITH_NOTE.schema);
  await show("versions", () => client.getAllVersions("avro-value"));
  await show("level", async () => [await client.updateCompatibility("avro-value", "FULL"), await client.getCompatibility("avro-value")]);
  await show("missing", () => client.getSchemaMetadata("nothing", 1));
  await show("subjects", () => client.getAllSubjects());
  await show("delete", () => client.deleteSubject("json-value"));
  await client.close();
};

main();
