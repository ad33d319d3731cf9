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

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
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
	isToken := properties["tokenauth"] == "true" // a delegation token: its id is the user, its HMAC the password
	switch name := properties["sasl.mechanism"]; name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password, IsToken: isToken}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password, IsToken: isToken}.AsSha512Mechanism(), nil
	case "GSSAPI":
		return ticket(properties)
	case "OAUTHBEARER":
		return oauth.Auth{Token: properties["token"]}.AsMechanism(), nil
	case "":
		return nil, nil
	default:
		return nil, fmt.Errorf("the mechanism %s is not known", name)
	}
}

func ticket(properties map[string]string) (sasl.Mechanism, error) {
	conf, err := config.Load(os.Getenv("KRB5_CONFIG"))
	if err != nil {
		return nil, err
	}
	keys, err := keytab.Load(properties["sasl.kerberos.keytab"])
	if err != nil {
		return nil, err
	}
	user := client.NewWithKeytab(
		properties["sasl.kerberos.principal"], properties["sasl.kerberos.realm"], keys, conf, client.DisablePAFXFAST(true),
	)
	return kerberos.Auth{Client: user, Service: properties["sasl.kerberos.service.name"]}.AsMechanismWithClose(), nil
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
	settings := &tls.Config{RootCAs: authorities}
	if path := properties["ssl.certificate.location"]; path != "" {
		pair, err := tls.LoadX509KeyPair(path, properties["ssl.key.location"])
		if err != nil {
			return nil, err
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
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
	encrypted, err := encryption(asked.Properties)
	if err != nil {
		return err
	}
	if encrypted != nil {
		options = append(options, kgo.DialTLSConfig(encrypted))
	}
	connected, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer connected.Close()
	within, cancel := context.WithTimeout(context.Background(), 35*time.Second)
	defer cancel()
	if err := connected.Ping(within); err != nil {
		return err
	}
	if err := connected.ProduceSync(within, &kgo.Record{Topic: asked.Topic, Value: []byte(asked.Value)}).FirstErr(); err != nil {
		return err
	}
	for {
		fetches := connected.PollFetches(within)
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
