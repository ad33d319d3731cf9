// Confluent's client of a schema registry for Go, with its serializers of Avro and JSON Schema. A line of JSON for each
// call: {"name": call, "result": what came}. Of what is refused, the result is Confluent's code.
package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/rest"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/avrov2"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/jsonschema"
)

type order struct {
	ID int64 `avro:"id" json:"id"`
}

type noted struct {
	ID   int64  `avro:"id"`
	Note string `avro:"note"`
}

const withNote = `{"type":"record","name":"order","fields":[{"name":"id","type":"long"},{"name":"note","type":"string","default":"none"}]}`
const broken = `{"type":"record","name":"order","fields":[{"name":"x","type":"long"}]}`
const outer = `{"type":"record","name":"outer","fields":[{"name":"o","type":"order"}]}`

func show(name string, result any, err error) {
	var refused *rest.Error
	switch {
	case errors.As(err, &refused):
		result = refused.Code
	case err != nil:
		result = err.Error()
	}
	line, _ := json.Marshal(map[string]any{"name": name, "result": result})
	fmt.Println(string(line))
}

func need[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func main() {
	config := schemaregistry.NewConfig(os.Args[1])
	config.MaxRetries = 0
	client := need(schemaregistry.NewClient(config))
	other := need(schemaregistry.NewClient(config))

	writer := need(avrov2.NewSerializer(client, serde.ValueSerde, avrov2.NewSerializerConfig()))
	bytes, err := writer.Serialize("go", &order{7})
	show("avro", hex.EncodeToString(bytes), err)
	reader := need(avrov2.NewDeserializer(other, serde.ValueSerde, avrov2.NewDeserializerConfig()))
	var read order
	err = reader.DeserializeInto("go", bytes, &read)
	show("read", read, err)
	second, err := client.Register("go-value", schemaregistry.SchemaInfo{Schema: withNote}, false)
	show("evolve", second, err)
	newest := avrov2.NewDeserializerConfig()
	newest.UseLatestVersion = true
	var withDefault noted
	err = need(avrov2.NewDeserializer(other, serde.ValueSerde, newest)).DeserializeInto("go", bytes, &withDefault)
	show("read by the newest", withDefault, err)
	_, err = client.Register("go-value", schemaregistry.SchemaInfo{Schema: broken}, false)
	show("incompatible", nil, err)
	fits, err := client.TestSubjectCompatibility("go-value", schemaregistry.SchemaInfo{Schema: broken})
	show("check", fits, err)

	values := need(jsonschema.NewSerializer(client, serde.ValueSerde, jsonschema.NewSerializerConfig()))
	text, err := values.Serialize("go-json", &order{8})
	show("json", string(text[5:]), err)
	var again order
	texts := need(jsonschema.NewDeserializer(other, serde.ValueSerde, jsonschema.NewDeserializerConfig()))
	err = texts.DeserializeInto("go-json", text, &again)
	show("read json", again, err)

	references := []schemaregistry.Reference{{Name: "order", Subject: "go-value", Version: 2}}
	_, err = client.Register("go-outer", schemaregistry.SchemaInfo{Schema: outer, References: references}, false)
	show("reference", nil, err)
	latest, err := other.GetLatestSchemaMetadata("go-outer")
	show("its reference", latest.References, err)
	byGUID, err := other.GetByGUID(latest.GUID)
	show("by guid", byGUID.Schema == latest.Schema, err)
	versions, err := client.GetAllVersions("go-value")
	show("versions", versions, err)
	level, err := client.UpdateCompatibility("go-value", schemaregistry.Full)
	show("level", level.String(), err)
	_, err = client.GetSchemaMetadata("nothing", 1)
	show("missing", nil, err)
	deleted, err := client.DeleteSubject("go-outer", false)
	show("delete", deleted, err)
}
