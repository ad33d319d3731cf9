// A member of a share group by franz-go: one request in JSON a line, and one answer; see ../../clients/franz_share.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type request struct {
	Op        string
	TimeoutMs int `json:"timeout_ms"`
	Records   []position
	Type      string
}

type position struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

type delivered struct {
	position
	Value         []byte `json:"value"`
	DeliveryCount int32  `json:"delivery_count"`
}

var statuses = map[string]kgo.AckStatus{
	"ACCEPT": kgo.AckAccept, "RELEASE": kgo.AckRelease, "REJECT": kgo.AckReject, "RENEW": kgo.AckRenew,
}

// What the broker said to the acknowledgements that were sent last, by partition.
type outcomes struct {
	mutex sync.Mutex
	codes map[string]int16
}

func (o *outcomes) note(results kgo.ShareAckResults) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, each := range results {
		var code int16
		if each.Err != nil {
			code = -1
			var known *kerr.Error
			if errors.As(each.Err, &known) {
				code = known.Code
			}
		}
		o.codes[fmt.Sprintf("%s-%d", each.Topic, each.Partition)] = code
	}
}

func (o *outcomes) take() map[string]int16 {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	taken := o.codes
	o.codes = map[string]int16{}
	return taken
}

type member struct {
	client *kgo.Client
	held   map[position]*kgo.Record
	said   *outcomes
}

func (m *member) poll(timeout time.Duration) ([]delivered, error) {
	within, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	fetches := m.client.PollRecords(within, 500)
	for _, each := range fetches.Errors() {
		if !errors.Is(each.Err, context.DeadlineExceeded) {
			return nil, each.Err
		}
	}
	found := []delivered{}
	m.held = map[position]*kgo.Record{}
	fetches.EachRecord(func(record *kgo.Record) {
		where := position{record.Topic, record.Partition, record.Offset}
		m.held[where] = record
		found = append(found, delivered{where, record.Value, record.DeliveryCount()})
	})
	return found, nil
}

func (m *member) acknowledge(records []position, kind string) (map[string]int16, error) {
	status, isKnown := statuses[kind]
	if !isKnown {
		return nil, fmt.Errorf("%q is no way to acknowledge", kind)
	}
	m.said.take()
	for _, where := range records {
		record := m.held[where]
		if record == nil {
			return nil, fmt.Errorf("%v is not held", where)
		}
		record.Ack(status)
	}
	within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := m.client.FlushAcks(within); err != nil {
		return nil, err
	}
	return m.said.take(), nil
}

func (m *member) answer(asked request) map[string]any {
	var err error
	answer := map[string]any{}
	switch asked.Op {
	case "poll":
		answer["records"], err = m.poll(time.Duration(asked.TimeoutMs) * time.Millisecond)
	case "acknowledge":
		answer["outcomes"], err = m.acknowledge(asked.Records, asked.Type)
	default:
		err = fmt.Errorf("%q is not known", asked.Op)
	}
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return answer
}

func main() {
	bootstrap := flag.String("bootstrap", "", "")
	group := flag.String("group", "", "")
	topics := flag.String("topics", "", "names with commas between them")
	flag.Parse()
	said := &outcomes{codes: map[string]int16{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.ShareGroup(*group),
		kgo.ConsumeTopics(strings.Split(*topics, ",")...),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { said.note(results) }),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.MetadataMaxAge(500*time.Millisecond),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	taking := &member{client: client, said: said}
	lines, output := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if err := output.Encode(taking.answer(asked)); err != nil {
			panic(err)
		}
	}
}
