// franz-go produces, consumes in a group and moves records in transactions, and tells which requests that took: one
// request in JSON a line, and one answer; see ../../clients/franz_flow.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const timeout = 60 * time.Second

type request struct {
	Op     string
	Topic  string
	Target string
	Group  string
	Values []string
	Count  int
}

// What was sent, as the client's own log says, and how many connections were opened for it.
type ledger struct {
	mutex       sync.Mutex
	connections int
	sent        map[string]int // "ApiVersions v5": how often
	warnings    []string
}

func (l *ledger) Level() kgo.LogLevel { return kgo.LogLevelDebug }

func (l *ledger) Log(level kgo.LogLevel, text string, _ ...any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if what, isSent := strings.CutPrefix(text, "wrote "); isSent {
		l.sent[what]++
	} else if level <= kgo.LogLevelWarn {
		l.warnings = append(l.warnings, text)
	}
}

func (l *ledger) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if err == nil {
		l.connections++
	}
}

func (l *ledger) tell() map[string]any {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	sent := map[string]int{}
	for what, count := range l.sent {
		sent[what] = count
	}
	return map[string]any{"connections": l.connections, "sent": sent, "warnings": append([]string{}, l.warnings...)}
}

type flow struct {
	seeds    []string
	ledger   *ledger
	producer *kgo.Client
}

func (f *flow) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(f.seeds...),
		kgo.WithLogger(f.ledger),
		kgo.WithHooks(f.ledger),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(500 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.UnknownTopicRetries(-1),
	}, more...)
}

// The records are produced by one client, which lives as long as the program.
func (f *flow) produce(ctx context.Context, topic string, values []string) ([]int64, error) {
	offsets := []int64{}
	for _, value := range values {
		record := &kgo.Record{Topic: topic, Value: []byte(value)}
		if err := f.producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return nil, err
		}
		offsets = append(offsets, record.Offset)
	}
	return offsets, nil
}

func (f *flow) consume(ctx context.Context, asked request) ([]string, error) {
	more := []kgo.Opt{kgo.ConsumeTopics(asked.Topic)}
	if asked.Group != "" {
		more = append(more, kgo.ConsumerGroup(asked.Group), kgo.DisableAutoCommit(), kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(f.options(more...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	values := []string{}
	for len(values) < asked.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	if asked.Group != "" {
		return values, client.CommitUncommittedOffsets(ctx)
	}
	return values, nil
}

// Moves records to another topic, each poll in a transaction that commits the group's offsets, too.
func (f *flow) move(ctx context.Context, asked request) (int, error) {
	session, err := kgo.NewGroupTransactSession(f.options(
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumerGroup(asked.Group),
		kgo.TransactionalID(asked.Group),
		kgo.ServerSideBalancer(),
	)...)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	moved := 0
	for moved < asked.Count {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return moved, err
		}
		if fetches.Empty() {
			continue
		}
		if err := session.Begin(); err != nil {
			return moved, err
		}
		var failed error
		fetches.EachRecord(func(record *kgo.Record) {
			record = &kgo.Record{Topic: asked.Target, Value: record.Value}
			session.Produce(ctx, record, func(_ *kgo.Record, err error) { failed = errors.Join(failed, err) })
		})
		isCommitted, err := session.End(ctx, kgo.TryCommit)
		if err = errors.Join(err, failed); err != nil {
			return moved, err
		}
		if isCommitted {
			moved += fetches.NumRecords()
		}
	}
	return moved, nil
}

func (f *flow) answer(asked request) map[string]any {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var err error
	answer := map[string]any{}
	switch asked.Op {
	case "produce":
		answer["offsets"], err = f.produce(ctx, asked.Topic, asked.Values)
	case "consume":
		answer["values"], err = f.consume(ctx, asked)
	case "move":
		answer["moved"], err = f.move(ctx, asked)
	case "ledger":
		answer = f.ledger.tell()
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
	flag.Parse()
	all := &flow{seeds: strings.Split(*bootstrap, ","), ledger: &ledger{sent: map[string]int{}}}
	var err error
	if all.producer, err = kgo.NewClient(all.options()...); err != nil {
		panic(err)
	}
	defer all.producer.Close()
	output := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if err := output.Encode(all.answer(asked)); err != nil {
			panic(err)
		}
	}
}
