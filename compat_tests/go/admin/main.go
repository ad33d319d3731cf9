// The calls of franz-go's admin client (kadm), as Redpanda Console and rpk make them. A line of JSON for each:
// {"name": call, "result": text}; a failure's text is the error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const topic = "franz"

var output = json.NewEncoder(os.Stdout)

func ask(name string, call func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	result, err := call(ctx)
	text := fmt.Sprintf("%+v", result)
	if err != nil {
		text = "error: " + err.Error()
	}
	if err := output.Encode(map[string]string{"name": name, "result": text}); err != nil {
		os.Exit(1)
	}
}

func lines[T any](values []T, line func(T) string) string {
	var all []string
	for _, value := range values {
		all = append(all, line(value))
	}
	sort.Strings(all)
	return strings.Join(all, "; ")
}

func pointer(text string) *string { return &text }

func topics(client *kgo.Client, admin *kadm.Client) {
	created := func(it kadm.CreateTopicResponse) string {
		return fmt.Sprintf("%s %d %d %v %s", it.Topic, it.NumPartitions, it.ReplicationFactor, it.Err, it.ErrMessage)
	}
	ask("CreateTopics", func(ctx context.Context) (any, error) {
		configs := map[string]*string{"retention.ms": pointer("600000")}
		result, err := admin.CreateTopics(ctx, 2, 1, configs, topic, "bad name")
		return lines(result.Sorted(), created), err
	})
	ask("CreateTopics, wide", func(ctx context.Context) (any, error) {
		result, err := admin.CreateTopics(ctx, 1, 3, nil, "wide")
		return lines(result.Sorted(), created), err
	})
	ask("ValidateCreateTopics", func(ctx context.Context) (any, error) {
		result, err := admin.ValidateCreateTopics(ctx, -1, -1, nil, "dry")
		return lines(result.Sorted(), created), err
	})
	ask("ListTopics", func(ctx context.Context) (any, error) {
		result, err := admin.ListTopics(ctx, topic, "nope")
		return lines(result.Sorted(), func(it kadm.TopicDetail) string {
			return fmt.Sprintf("%s %v %v", it.Topic, it.Err, lines(it.Partitions.Sorted(), func(p kadm.PartitionDetail) string {
				return fmt.Sprintf("%d %d %d %v %v %v %v", p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas, p.Err)
			}))
		}), err
	})
	ask("CreatePartitions", func(ctx context.Context) (any, error) {
		result, err := admin.CreatePartitions(ctx, 1, topic)
		return lines(result.Sorted(), func(it kadm.CreatePartitionsResponse) string {
			return fmt.Sprintf("%s %v %s", it.Topic, it.Err, it.ErrMessage)
		}), err
	})
	ask("Partitions", func(ctx context.Context) (any, error) {
		// Kafka answers before all of its metadata say so, and the client remembers what it was told for a while.
		for {
			result, err := admin.ListTopics(ctx, topic)
			if there := len(result[topic].Partitions); err != nil || there == 3 {
				return there, err
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	ask("UpdatePartitions, fewer", func(ctx context.Context) (any, error) {
		result, err := admin.UpdatePartitions(ctx, 1, topic)
		return lines(result.Sorted(), func(it kadm.CreatePartitionsResponse) string {
			return fmt.Sprintf("%s %v %s", it.Topic, it.Err, it.ErrMessage)
		}), err
	})
	ask("Produce", func(ctx context.Context) (any, error) {
		for i := 0; i < 5; i++ {
			record := &kgo.Record{Topic: topic, Partition: 0, Value: []byte("value"), Timestamp: time.UnixMilli(int64(1000 + i))}
			if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
				return nil, err
			}
		}
		return "5", nil
	})
	listed := func(it kadm.ListedOffset) string {
		return fmt.Sprintf("%s %d %d %d %d %v", it.Topic, it.Partition, it.Timestamp, it.Offset, it.LeaderEpoch, it.Err)
	}
	for _, it := range []struct {
		name string
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
	}{
		{"start", admin.ListStartOffsets},
		{"end", admin.ListEndOffsets},
		{"committed", admin.ListCommittedOffsets},
		{"after", func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, 1003, topics...)
		}},
	} {
		ask("ListOffsets "+it.name, func(ctx context.Context) (any, error) {
			result, err := it.list(ctx, topic)
			var all []kadm.ListedOffset
			result.Each(func(it kadm.ListedOffset) { all = append(all, it) })
			return lines(all, listed), err
		})
	}
	ask("DeleteRecords", func(ctx context.Context) (any, error) {
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, 2, -1)
		offsets.AddOffset(topic, 1, 99, -1)
		result, err := admin.DeleteRecords(ctx, offsets)
		return lines(result.Sorted(), func(it kadm.DeleteRecordsResponse) string {
			return fmt.Sprintf("%s %d %d %v", it.Topic, it.Partition, it.LowWatermark, it.Err)
		}), err
	})
}

func cluster(client *kgo.Client, admin *kadm.Client) {
	ask("BrokerMetadata", func(ctx context.Context) (any, error) {
		result, err := admin.BrokerMetadata(ctx)
		return fmt.Sprint(result.Controller, result.Brokers.NodeIDs()), err
	})
	ask("DescribeAllLogDirs", func(ctx context.Context) (any, error) {
		result, err := admin.DescribeAllLogDirs(ctx, nil)
		return lines(result.Sorted(), func(it kadm.DescribedLogDir) string {
			partition, found := it.Topics.Lookup(topic, 0)
			return fmt.Sprint(it.Broker, " ", it.Err, " ", found, " ", partition.OffsetLag, " ", partition.IsFuture)
		}), err
	})
	ask("ListPartitionReassignments", func(ctx context.Context) (any, error) {
		result, err := admin.ListPartitionReassignments(ctx, nil)
		return len(result), err
	})
	ask("ElectLeaders", func(ctx context.Context) (any, error) {
		set := kadm.TopicsSet{}
		set.Add(topic, 0)
		result, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		found := result[topic][0]
		return fmt.Sprint(found.Err, " ", found.ErrMessage), err
	})
	ask("DescribeTopicConfigs", func(ctx context.Context) (any, error) {
		result, err := admin.DescribeTopicConfigs(ctx, topic)
		return lines(result, func(it kadm.ResourceConfig) string {
			return fmt.Sprint(it.Name, " ", it.Err, " ", lines(it.Configs, func(c kadm.Config) string {
				if c.Key == "min.insync.replicas" { // set for the cluster by a feature that Ottla does not have
					return ""
				}
				return fmt.Sprint(c.Key, "=", c.MaybeValue(), " ", c.Source, " ", c.Sensitive)
			}))
		}), err
	})
	ask("DescribeBrokerConfigs", func(ctx context.Context) (any, error) {
		result, err := admin.DescribeBrokerConfigs(ctx, 1)
		return fmt.Sprint(len(result), result[0].Err, len(result[0].Configs) > 300), err
	})
	ask("AlterTopicConfigs", func(ctx context.Context) (any, error) {
		changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: pointer("compact")}}
		result, err := admin.AlterTopicConfigs(ctx, changes, topic, "nope")
		return lines(result, func(it kadm.AlterConfigsResponse) string {
			return fmt.Sprint(it.Name, " ", it.Err, " ", it.ErrMessage)
		}), err
	})
	ask("DescribeClientQuotas", func(ctx context.Context) (any, error) {
		return admin.DescribeClientQuotas(ctx, false, nil)
	})
	ask("DescribeACLs", func(ctx context.Context) (any, error) {
		builder := kadm.NewACLs().AnyResource().ResourcePatternType(kadm.ACLPatternAny).Allow().AllowHosts().Deny().DenyHosts().Operations(kadm.OpAny)
		result, err := admin.DescribeACLs(ctx, builder)
		return lines(result, func(it kadm.DescribeACLsResult) string { return fmt.Sprint(it.Err, " ", it.ErrMessage) }), err
	})
	ask("DescribeUserSCRAMs", func(ctx context.Context) (any, error) {
		result, err := admin.DescribeUserSCRAMs(ctx, "nobody")
		return lines(result.Sorted(), func(it kadm.DescribedUserSCRAM) string { return fmt.Sprint(it.User, " ", it.Err) }), err
	})
	ask("DescribeProducers", func(ctx context.Context) (any, error) {
		set := kadm.TopicsSet{}
		set.Add(topic, 0)
		result, err := admin.DescribeProducers(ctx, set)
		return len(result), err
	})
	ask("ListTransactions", func(ctx context.Context) (any, error) {
		result, err := admin.ListTransactions(ctx, nil, nil)
		return len(result), err
	})
	// What kadm has no call for, in every version, as the Console's own requests are.
	for version := int16(0); version <= 2; version++ {
		ask(fmt.Sprint("DescribeCluster ", version), func(ctx context.Context) (any, error) {
			request := kmsg.NewPtrDescribeClusterRequest()
			response, err := request.RequestWith(ctx, pinned{client, version})
			if err != nil {
				return nil, err
			}
			return fmt.Sprint(kerr.ErrorForCode(response.ErrorCode), response.ControllerID, len(response.Brokers)), nil
		})
	}
}

// pinned sends requests in one version.
type pinned struct {
	client  *kgo.Client
	version int16
}

func (p pinned) Request(ctx context.Context, request kmsg.Request) (kmsg.Response, error) {
	request.SetVersion(p.version)
	return p.client.Request(ctx, request)
}

func groups(admin *kadm.Client) {
	ask("CommitOffsets", func(ctx context.Context) (any, error) {
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, 3, -1)
		result, err := admin.CommitOffsets(ctx, "gophers", offsets)
		return fmt.Sprint(result.Error()), err
	})
	ask("FetchOffsets", func(ctx context.Context) (any, error) {
		result, err := admin.FetchOffsets(ctx, "gophers")
		return lines(result.Sorted(), func(it kadm.OffsetResponse) string {
			return fmt.Sprint(it.Topic, it.Partition, " ", it.At, it.LeaderEpoch, it.Metadata, it.Err)
		}), err
	})
	ask("ListGroups", func(ctx context.Context) (any, error) {
		result, err := admin.ListGroups(ctx)
		return lines(result.Sorted(), func(it kadm.ListedGroup) string {
			return fmt.Sprint(it.Group, " ", it.ProtocolType, " ", it.State, " ", it.Coordinator)
		}), err
	})
	ask("DescribeGroups", func(ctx context.Context) (any, error) {
		result, err := admin.DescribeGroups(ctx, "gophers", "nobody")
		return lines(result.Sorted(), func(it kadm.DescribedGroup) string {
			return fmt.Sprint(it.Group, " ", it.State, " ", it.Protocol, " ", len(it.Members), " ", it.Err)
		}), err
	})
	ask("Lag", func(ctx context.Context) (any, error) {
		result, err := admin.Lag(ctx, "gophers")
		return lines(result.Sorted(), func(it kadm.DescribedGroupLag) string {
			return fmt.Sprint(it.Group, " ", it.State, " ", it.Lag.Total(), " ", it.Error())
		}), err
	})
	ask("DeleteOffsets", func(ctx context.Context) (any, error) {
		set := kadm.TopicsSet{}
		set.Add(topic, 0)
		result, err := admin.DeleteOffsets(ctx, "gophers", set)
		return fmt.Sprint(result.Error()), err
	})
	ask("DeleteGroups", func(ctx context.Context) (any, error) {
		result, err := admin.DeleteGroups(ctx, "gophers", "nobody")
		return lines(result.Sorted(), func(it kadm.DeleteGroupResponse) string { return fmt.Sprint(it.Group, " ", it.Err) }), err
	})
}

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics(client, admin)
	cluster(client, admin)
	groups(admin)
	ask("DeleteTopics", func(ctx context.Context) (any, error) {
		result, err := admin.DeleteTopics(ctx, topic, "nope")
		return lines(result.Sorted(), func(it kadm.DeleteTopicResponse) string {
			return fmt.Sprint(it.Topic, " ", it.Err, " ", it.ErrMessage)
		}), err
	})
}
