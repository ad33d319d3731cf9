// franz-go's client of a schema registry, call by call. A line of JSON for each: {"name": call, "result": what came}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

const order = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
const other = `{"type":"record","name":"Order","fields":[{"name":"x","type":"long"}]}`
const outer = `{"type":"record","name":"Outer","fields":[{"name":"o","type":"Order"}]}`
const older = `{"type":"object","properties":{"id":{"type":"integer"}},"additionalProperties":false}`
const newer = `{"type":"object","properties":{"id":{"type":"integer"},"note":{"type":"string"}},"additionalProperties":false}`

type oldOrder struct {
	ID int `json:"id"`
}

type newOrder struct {
	ID   int    `json:"id"`
	Note string `json:"note"`
}

func show(name string, result any, err error) {
	var refused *sr.ResponseError
	switch {
	case errors.As(err, &refused):
		result = fmt.Sprintf("%d", refused.ErrorCode)
	case err != nil:
		result = err.Error()
	}
	line, _ := json.Marshal(map[string]any{"name": name, "result": result})
	fmt.Println(string(line))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	if err != nil {
		panic(err)
	}
	made, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: order})
	show("create", []any{made.Subject, made.Version, made.ID}, err)
	again, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: order})
	show("create again", again.ID == made.ID, err)
	found, err := client.SchemaByID(ctx, made.ID)
	show("by id", found.Schema, err)
	looked, err := client.LookupSchema(ctx, "go-value", sr.Schema{Schema: order})
	show("look up", looked.Version, err)
	checked, err := client.CheckCompatibility(ctx, "go-value", -1, sr.Schema{Schema: other})
	show("check", checked.Is, err)
	_, err = client.CreateSchema(ctx, "go-value", sr.Schema{Schema: other})
	show("incompatible", nil, err)
	references := []sr.SchemaReference{{Name: "Order", Subject: "go-value", Version: 1}}
	_, err = client.CreateSchema(ctx, "go-outer", sr.Schema{Schema: outer, References: references})
	show("reference", nil, err)
	by, err := client.SchemaReferences(ctx, "go-value", 1)
	show("referenced by", len(by), err)
	for _, result := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, "go-value") {
		show("level", result.Level.String(), result.Err)
	}
	for _, result := range client.SetMode(ctx, sr.ModeReadOnly, "go-value") {
		show("mode", result.Mode.String(), result.Err)
	}
	_, err = client.DeleteSubject(ctx, "go-value", sr.SoftDelete)
	show("read only", nil, err)
	subjects, err := client.Subjects(ctx)
	show("subjects", subjects, err)
	_, err = client.SchemaByVersion(ctx, "nothing", -1)
	show("missing", nil, err)
	deleted, err := client.DeleteSubject(ctx, "go-outer", sr.SoftDelete)
	show("delete", deleted, err)
	show("serde", written(ctx, client), nil)
}

// What two schemas of a subject wrote, as a serde that knows both reads it.
func written(ctx context.Context, client *sr.Client) []any {
	first, err := client.CreateSchema(ctx, "go-json", sr.Schema{Schema: older, Type: sr.TypeJSON})
	show("older", first.Version, err)
	second, err := client.CreateSchema(ctx, "go-json", sr.Schema{Schema: newer, Type: sr.TypeJSON})
	show("newer", second.Version, err)
	serde := new(sr.Serde)
	serde.Register(first.ID, oldOrder{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	serde.Register(second.ID, newOrder{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	old, young := serde.MustEncode(oldOrder{7}), serde.MustEncode(newOrder{8, "soon"})
	id, _, _ := serde.DecodeID(old)
	one, _ := serde.DecodeNew(old)
	two, _ := serde.DecodeNew(young)
	return []any{id == first.ID, one, two}
}
