// franz-go sends one record and reads it, over TLS and SASL as it is told: one argument in JSON, see ../../secure_clients.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type order struct {
	Bootstrap, Topic, Value string
	Properties              map[string]string
}

func mechanism(properties map[string]string) (sasl.Mechanism, error) {
	user, password := properties["sasl.username"], properties["sasl.password"]
	switch name := properties["sasl.mechanism"]; name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: properties["token"]}.AsMechanism(), nil
	case "":
		return nil, nil
	default:
		return nil, fmt.Errorf("the mechanism %s is not known", name)
	}
}

func encryption(properties map[string]string) (*tls.Config, error) {
	if !strings.HasSuffix(properties["security.protocol"], "SSL") {
		return nil, nil
	}
	authorities := x509.NewCertPool()
	if path := properties["ssl.ca.location"]; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		authorities.AppendCertsFromPEM(pem)
	}
	config := &tls.Config{RootCAs: authorities}
	if path := properties["ssl.certificate.location"]; path != "" {
		pair, err := tls.LoadX509KeyPair(path, properties["ssl.key.location"])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func run() error {
	var asked order
	if err := json.Unmarshal([]byte(os.Args[1]), &asked); err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(asked.Bootstrap), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumerGroup("franz-go-" + asked.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	login, err := mechanism(asked.Properties)
	if err != nil {
		return err
	}
	if login != nil {
		options = append(options, kgo.SASL(login))
	}
	config, err := encryption(asked.Properties)
	if err != nil {
		return err
	}
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), 35*time.Second)
	defer cancel()
	if err := client.Ping(within); err != nil {
		return err
	}
	if err := client.ProduceSync(within, &kgo.Record{Topic: asked.Topic, Value: []byte(asked.Value)}).FirstErr(); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(within)
		for _, each := range fetches.Errors() {
			if !errors.Is(each.Err, kerr.UnknownTopicOrPartition) {
				return each.Err
			}
		}
		for _, record := range fetches.Records() {
			_, err := os.Stdout.Write(record.Value)
			return err
		}
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprint(os.Stderr, err)
		os.Exit(1)
	}
}
