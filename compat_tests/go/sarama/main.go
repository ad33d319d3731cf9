// Sarama sends one record and reads it, over TLS and SASL as it is told: one argument in JSON, see ../../secure_clients.py.
package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type order struct {
	Bootstrap, Topic, Value string
	Properties              map[string]string
}

// What Sarama asks of a library for SCRAM.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (client *scramClient) Begin(user, password, authorizationID string) error {
	made, err := client.hash.NewClient(user, password, authorizationID)
	if err == nil {
		client.conversation = made.NewConversation()
	}
	return err
}

func (client *scramClient) Step(challenge string) (string, error) {
	return client.conversation.Step(challenge)
}

func (client *scramClient) Done() bool { return client.conversation.Done() }

type token string

func (shown token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(shown)}, nil
}

func login(config *sarama.Config, properties map[string]string) error {
	mechanism := properties["sasl.mechanism"]
	if mechanism == "" {
		return nil
	}
	config.Net.SASL.Enable = true
	config.Net.SASL.Version = sarama.SASLHandshakeV1
	config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = properties["sasl.username"], properties["sasl.password"]
	switch mechanism {
	case sarama.SASLTypePlaintext:
	case sarama.SASLTypeSCRAMSHA256:
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha256.New} }
	case sarama.SASLTypeSCRAMSHA512:
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha512.New} }
	case sarama.SASLTypeOAuth:
		config.Net.SASL.TokenProvider = token(properties["token"])
	case sarama.SASLTypeGSSAPI:
		config.Net.SASL.GSSAPI = sarama.GSSAPIConfig{
			AuthType:           sarama.KRB5_KEYTAB_AUTH,
			KeyTabPath:         properties["sasl.kerberos.keytab"],
			KerberosConfigPath: os.Getenv("KRB5_CONFIG"),
			ServiceName:        properties["sasl.kerberos.service.name"],
			Username:           properties["sasl.kerberos.principal"],
			Realm:              properties["sasl.kerberos.realm"],
			DisablePAFXFAST:    true,
		}
	default:
		return fmt.Errorf("the mechanism %s is not known", mechanism)
	}
	return nil
}

func encryption(config *sarama.Config, properties map[string]string) error {
	if !strings.HasSuffix(properties["security.protocol"], "SSL") {
		return nil
	}
	authorities := x509.NewCertPool()
	if path := properties["ssl.ca.location"]; path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		authorities.AppendCertsFromPEM(pem)
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: authorities}
	if path := properties["ssl.certificate.location"]; path != "" {
		pair, err := tls.LoadX509KeyPair(path, properties["ssl.key.location"])
		if err != nil {
			return err
		}
		config.Net.TLS.Config.Certificates = []tls.Certificate{pair}
	}
	return nil
}

func run() error {
	var asked order
	if err := json.Unmarshal([]byte(os.Args[1]), &asked); err != nil {
		return err
	}
	config := sarama.NewConfig()
	config.Version = sarama.V4_0_0_0
	config.Producer.Return.Successes = true
	config.Metadata.Retry.Max = 20
	if err := errors.Join(login(config, asked.Properties), encryption(config, asked.Properties)); err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{asked.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	message := &sarama.ProducerMessage{Topic: asked.Topic, Value: sarama.StringEncoder(asked.Value)}
	if _, _, err := producer.SendMessage(message); err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	partition, err := consumer.ConsumePartition(asked.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	select {
	case record := <-partition.Messages():
		_, err := os.Stdout.Write(record.Value)
		return err
	case <-time.After(20 * time.Second):
		return errors.New("the record does not come")
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
