// franz-go reads a topic to a number of records, from the beginning of each partition, as it is set up by default; it
// prints in JSON how many seconds that took.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if len(os.Args) != 5 {
		fail("bootstrap topic partitions records")
	}
	bootstrap, topic := os.Args[1], os.Args[2]
	partitions, wanted := number(os.Args[3]), number(os.Args[4])
	offsets := map[int32]kgo.Offset{}
	for index := range partitions {
		offsets[int32(index)] = kgo.NewOffset().AtStart()
	}
	began := time.Now()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
	)
	if err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for got := 0; got < wanted; {
		fetches := client.PollFetches(ctx)
		for _, found := range fetches.Errors() {
			fail(found.Err)
		}
		got += fetches.NumRecords()
	}
	fmt.Printf("{\"records\": %d, \"seconds\": %.6f}\n", wanted, time.Since(began).Seconds())
	client.Close()
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		fail(err)
	}
	return found
}

func fail(reason any) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}
