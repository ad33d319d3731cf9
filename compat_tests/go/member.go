// One member of a consumer group: the same as compat_tests/groups/member.py, by franz-go.
//
// --seek-to N goes back to that offset in every partition that it is assigned first.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var output = json.NewEncoder(os.Stdout)
var printing sync.Mutex

func emit(event map[string]any) {
	printing.Lock()
	defer printing.Unlock()
	if err := output.Encode(event); err != nil {
		os.Exit(1)
	}
}

type assignment struct {
	mutex sync.Mutex
	held  map[string][]int32
}

func (a *assignment) change(partitions map[string][]int32, isHeld bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			if isHeld {
				a.held[topic] = append(a.held[topic], number)
			} else {
				a.held[topic] = slices.DeleteFunc(a.held[topic], func(n int32) bool { return n == number })
			}
		}
	}
	all := [][]any{}
	for topic, numbers := range a.held {
		for _, number := range numbers {
			all = append(all, []any{topic, number})
		}
	}
	if len(partitions) > 0 {
		emit(map[string]any{"event": "assigned", "partitions": all})
	}
}

func main() {
	bootstrap := flag.String("bootstrap", "", "")
	group := flag.String("group", "", "")
	topic := flag.String("topic", "", "a name, or a pattern that begins with ^")
	instance := flag.String("instance-id", "", "")
	strategy := flag.String("strategy", "range", "range or cooperative-sticky")
	protocol := flag.String("protocol", "classic", "classic or consumer")
	sessionMs := flag.Int("session-timeout-ms", 6000, "")
	commit := flag.String("commit", "sync", "sync or async")
	seekTo := flag.Int64("seek-to", -1, "")
	flag.Parse()

	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()

	assigned := &assignment{held: map[string][]int32{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(500 * time.Millisecond),
		kgo.SessionTimeout(time.Duration(*sessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(*sessionMs/10) * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			assigned.change(partitions, true)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			assigned.change(partitions, false)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			assigned.change(partitions, false)
		}),
	}
	if strings.HasPrefix(*topic, "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	if *instance != "" {
		options = append(options, kgo.InstanceID(*instance))
	}
	if *strategy == "cooperative-sticky" {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	if *protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	consume(ctx, client, assigned, *seekTo, *commit == "async")
	if *instance == "" {
		client.LeaveGroup()
	}
	client.CloseAllowingRebalance()
	emit(map[string]any{"event": "closed"})
}

// Seeks in what is assigned, and says whether there is something.
func seek(client *kgo.Client, assigned *assignment, offset int64) bool {
	assigned.mutex.Lock()
	defer assigned.mutex.Unlock()
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for topic, numbers := range assigned.held {
		offsets[topic] = map[int32]kgo.EpochOffset{}
		for _, number := range numbers {
			offsets[topic][number] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		}
	}
	client.SetOffsets(offsets)
	return len(offsets) > 0
}

func consume(ctx context.Context, client *kgo.Client, assigned *assignment, seekTo int64, asynchronous bool) {
	var committing sync.WaitGroup
	defer committing.Wait() // what is not sent when the member leaves is not committed
	for ctx.Err() == nil {
		turn, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollRecords(turn, 500)
		cancel()
		if seekTo >= 0 && seek(client, assigned, seekTo) {
			seekTo = -1
		}
		rows := [][]any{}
		fetches.EachRecord(func(record *kgo.Record) {
			rows = append(rows, []any{record.Topic, record.Partition, record.Offset, string(record.Value)})
		})
		if len(rows) > 0 {
			emit(map[string]any{"event": "rows", "rows": rows})
			background := context.Background()
			if asynchronous {
				committing.Add(1)
				client.CommitOffsets(background, client.UncommittedOffsets(), func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
					defer committing.Done()
					refused(err)
				})
			} else {
				refused(client.CommitUncommittedOffsets(background))
			}
		}
		client.AllowRebalance()
	}
}

func refused(err error) {
	if err != nil {
		emit(map[string]any{"event": "refused", "text": err.Error()})
	}
}
