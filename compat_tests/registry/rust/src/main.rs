//! schema_registry_converter, a client of schema registries for Rust: all three types registered, encoded and decoded,
//! by the texts that the program has and by those that the registry has. A line of JSON for each call:
//! {"name": call, "result": what came}. Of what is refused, the result is the HTTP status.

use apache_avro::types::Value as AvroValue;
use schema_registry_converter::blocking::avro::{AvroDecoder, AvroEncoder};
use schema_registry_converter::blocking::json::{JsonDecoder, JsonEncoder};
use schema_registry_converter::blocking::proto_raw::{ProtoRawDecoder, ProtoRawEncoder};
use schema_registry_converter::blocking::schema_registry::{
    SrSettings, get_all_subjects, get_all_versions, get_schema_by_guid, get_schema_by_id,
    get_schema_by_subject, is_compatible_schema, post_schema,
};
use schema_registry_converter::error::SRCError;
use schema_registry_converter::schema_registry_common::{
    SchemaType, SubjectNameStrategy, SuppliedReference, SuppliedSchema,
};
use serde_json::{Value, json};

const ORDER: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}"#;
const WITH_NOTE: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":"string","default":"none"}]}"#;
const BROKEN: &str = r#"{"type":"record","name":"Order","fields":[{"name":"x","type":"long"}]}"#;
const OUTER: &str = r#"{"type":"record","name":"Outer","fields":[{"name":"o","type":"Order"}]}"#;
const JSON_SCHEMA: &str =
    r#"{"title":"Order","type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}"#;
const PROTOBUF: &str =
    "syntax = \"proto3\"; package shop; message Other { } message Order { int32 id = 1; }";

fn avro(text: &str) -> SuppliedSchema {
    SuppliedSchema::new(None, SchemaType::Avro, text.to_string())
}

fn by(topic: &str, schema: SuppliedSchema) -> SubjectNameStrategy {
    SubjectNameStrategy::TopicNameStrategyWithSchema(topic.to_string(), false, schema)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn show(name: &str, result: Result<Value, SRCError>) {
    let shown = result.unwrap_or_else(|refused| {
        let status = refused
            .error
            .split("status ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        status.map_or(json!(refused.to_string()), |status| json!(status))
    });
    println!("{}", json!({"name": name, "result": shown}));
}

fn avro_values(settings: &SrSettings) -> Result<Value, SRCError> {
    let id = ("id", AvroValue::Long(7));
    let old =
        AvroEncoder::new(settings.clone()).encode(vec![id.clone()], &by("rust", avro(ORDER)))?;
    let note = ("note", AvroValue::String("soon".to_string()));
    let young =
        AvroEncoder::new(settings.clone()).encode(vec![id, note], &by("rust", avro(WITH_NOTE)))?;
    let decoder = AvroDecoder::new(settings.clone());
    let read = |bytes: &[u8]| -> Result<Value, SRCError> {
        let value = decoder.decode(Some(bytes))?.value;
        Ok(Value::try_from(value).unwrap_or_default())
    };
    Ok(json!([hex(&old), read(&old)?, hex(&young), read(&young)?]))
}

fn json_values(settings: &SrSettings) -> Result<Value, SRCError> {
    let schema = SuppliedSchema::new(None, SchemaType::Json, JSON_SCHEMA.to_string());
    let encoder = JsonEncoder::new(settings.clone());
    let bytes = encoder.encode(&json!({"id": 7}), &by("rust-json", schema))?;
    let decoded = JsonDecoder::new(settings.clone()).decode(Some(&bytes))?;
    Ok(json!([hex(&bytes[..5]), decoded.map(|it| it.value)]))
}

fn protobuf_values(settings: &SrSettings) -> Result<Value, SRCError> {
    let schema = SuppliedSchema::new(None, SchemaType::Protobuf, PROTOBUF.to_string());
    let encoder = ProtoRawEncoder::new(settings.clone());
    let bytes = encoder.encode(&[8, 7], "shop.Order", &by("rust-protobuf", schema))?;
    let decoded = ProtoRawDecoder::new(settings.clone()).decode(Some(&bytes))?;
    Ok(json!([
        hex(&bytes),
        decoded.map(|it| json!([it.full_name.to_string(), it.bytes]))
    ]))
}

fn reference(settings: &SrSettings) -> Result<Value, SRCError> {
    let referred = SuppliedReference::new(
        "Order".to_string(),
        "rust-value".to_string(),
        WITH_NOTE.to_string(),
    );
    let made = post_schema(
        settings,
        "rust-outer".to_string(),
        avro(OUTER).with_references(vec![referred]),
    )?;
    let found = get_schema_by_id(made.id, settings)?;
    let names: Vec<Value> = found
        .references
        .iter()
        .map(|it| json!([it.name, it.subject, it.version]))
        .collect();
    Ok(json!([made.id, names]))
}

fn main() {
    let url = std::env::args().nth(1).expect("the registry's URL");
    let settings = SrSettings::new_builder(url)
        .no_proxy()
        .build()
        .expect("a client");
    let value = "rust-value".to_string();
    show("avro", avro_values(&settings));
    show("json", json_values(&settings));
    show("protobuf", protobuf_values(&settings));
    let broken = AvroEncoder::new(settings.clone());
    show(
        "incompatible",
        broken
            .encode(vec![("x", AvroValue::Long(9))], &by("rust", avro(BROKEN)))
            .map(|it| json!(hex(&it))),
    );
    show(
        "check",
        is_compatible_schema(&settings, value.clone(), avro(BROKEN)).map(|it| json!(it)),
    );
    show(
        "again",
        post_schema(&settings, value.clone(), avro(ORDER)).map(|it| json!(it.id)),
    );
    let newest = SubjectNameStrategy::TopicNameStrategy("rust".to_string(), false);
    let latest = get_schema_by_subject(&settings, &newest);
    show(
        "latest",
        latest
            .as_ref()
            .map(|it| json!([it.id, it.version]))
            .map_err(Clone::clone),
    );
    let guid = latest.ok().and_then(|it| it.guid).unwrap_or_default();
    show(
        "by guid",
        get_schema_by_guid(&guid, &settings).map(|it| json!(it.schema)),
    );
    show("reference", reference(&settings));
    show(
        "versions",
        get_all_versions(&settings, value).map(|it| json!(it)),
    );
    show(
        "missing",
        get_all_versions(&settings, "nothing".to_string()).map(|it| json!(it)),
    );
    show("subjects", get_all_subjects(&settings).map(|it| json!(it)));
}
