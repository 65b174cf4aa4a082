// Package standin holds the one-process stand-ins for Google Cloud: Pub/Sub with its push subscriptions, the
// issuer of push tokens, and the services that are called. It owns the behaviour that production documents
// and Google's emulators lack. It refuses to be more than a stand-in: serve it on loopback alone.
package standin

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/gcp/pubsub"
)

// Broker is Pub/Sub in this process: the client library's in-memory gRPC server on loopback for publishing,
// and the simulator behind it. A publish is confirmed when the simulator has it; the server keeps none.
type Broker struct {
	*Simulator
	server *pstest.Server
}

// NewBroker starts a broker.
func NewBroker(config SimulatorConfig) (*Broker, error) {
	b := &Broker{Simulator: NewSimulator(config)}
	b.server = pstest.NewServerWithAddress("127.0.0.1:0",
		pstest.ServerReactorOption{FuncName: "Publish", Reactor: b})
	// A client that looks up a topic finds it.
	for _, id := range slices.Sorted(maps.Keys(b.topics)) {
		topic := &pubsubpb.Topic{Name: "projects/" + config.ProjectID + "/topics/" + id}
		if _, err := b.server.GServer.CreateTopic(context.Background(), topic); err != nil {
			return nil, errors.Join(fmt.Errorf("standin: topic %s: %w", id, err), b.Close())
		}
	}
	return b, nil
}

// Addr is the address of the gRPC server, as PUBSUB_EMULATOR_HOST takes it.
func (b *Broker) Addr() string { return b.server.Addr }

// Close stops the server and the simulator.
func (b *Broker) Close() error {
	return errors.Join(b.server.Close(), b.Simulator.Close())
}

var _ pstest.Reactor = (*Broker)(nil)

// React implements pstest.Reactor: the simulator takes what is published.
func (b *Broker) React(request any) (handled bool, answer any, err error) {
	publish, ok := request.(*pubsubpb.PublishRequest)
	if !ok {
		return false, nil, nil
	}
	messages := make([]contract.Message, len(publish.GetMessages()))
	for n, m := range publish.GetMessages() {
		messages[n] = contract.Message{
			Data: m.GetData(), Attributes: m.GetAttributes(), OrderingKey: m.GetOrderingKey(),
		}
	}
	// Another project's topic is none.
	topic := strings.TrimPrefix(publish.GetTopic(), "projects/"+b.config.ProjectID+"/topics/")
	ids, err := b.publish(context.Background(), topic, messages)
	code := codes.Unavailable
	switch {
	case err == nil:
		return true, &pubsubpb.PublishResponse{MessageIds: ids}, nil
	case errors.Is(err, ErrNoTopic):
		code = codes.NotFound
	case errors.Is(err, contract.ErrLimit):
		code = codes.InvalidArgument
	}
	return true, &pubsubpb.PublishResponse{}, status.Error(code, err.Error())
}

// pushBody is Pub/Sub's wrapped push body, with ids and times under two names each, as in production.
type pushBody struct {
	Message      pushedMessage `json:"message"`
	Subscription string        `json:"subscription"`
	// DeliveryAttempt is set with a dead-letter policy only.
	DeliveryAttempt int `json:"deliveryAttempt,omitempty"`
}

type pushedMessage struct {
	Attributes   map[string]string `json:"attributes,omitempty"`
	Data         []byte            `json:"data,omitempty"`
	MessageID    string            `json:"messageId"`
	MessageID2   string            `json:"message_id"`
	OrderingKey  string            `json:"orderingKey,omitempty"`
	PublishTime  string            `json:"publishTime"`
	PublishTime2 string            `json:"publish_time"`
}

// maxAnswerBytes is how much of an answer is read, so that its connection can be reused.
const maxAnswerBytes = 64 << 10

// send reports whether the answer acknowledges the message; without one by the ack deadline it does not.
func (s *Simulator) send(sub *subscription, d *Message, url string) (acked bool) {
	ctx, cancel := context.WithTimeout(s.ctx, sub.AckDeadline)
	defer cancel()
	published := d.PublishTime.Format("2006-01-02T15:04:05.000Z07:00")
	body := pushBody{
		Message:      pushedMessage{d.Attributes, d.Data, d.ID, d.ID, d.OrderingKey, published, published},
		Subscription: "projects/" + s.config.ProjectID + "/subscriptions/" + sub.ID,
	}
	if sub.DeadLetterTopic != "" {
		body.DeliveryAttempt = d.Failures + 1
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(encoded))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "CloudPubSub-Google")
	if s.config.Token != nil {
		token, err := s.config.Token()
		if err != nil {
			return false
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswerBytes))
	_ = response.Body.Close()
	switch response.StatusCode {
	case http.StatusProcessing, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return false
}

// Google's tokens are valid for an hour. Each is reused for half of it.
const (
	tokenLife  = time.Hour
	tokenReuse = tokenLife / 2
	maxTokens  = 100
)

// Issuer stands in for Google's token service. It signs push tokens with a key of its own and
// serves the public key as a JSON Web Key Set. With the keys' URL pointed here, the worker's
// verification runs unchanged. It is safe for concurrent use.
type Issuer struct {
	now  func() time.Time
	key  *rsa.PrivateKey
	kid  string
	keys []byte
	// tokens by their audience and account.
	tokens *cache.Cache[string]
}

var _ http.Handler = (*Issuer)(nil)

// NewIssuer generates a key and returns an issuer with it.
func NewIssuer(now func() time.Time) (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("standin: signing key: %w", err)
	}
	sum := sha256.Sum256(key.N.Bytes())
	kid := hex.EncodeToString(sum[:20])
	keys, err := json.Marshal(map[string]any{"keys": []map[string]string{{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid,
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
	}}})
	if err != nil {
		return nil, fmt.Errorf("standin: key set: %w", err)
	}
	return &Issuer{now: now, key: key, kid: kid, keys: keys, tokens: cache.New[string](maxTokens, now)}, nil
}

// Token returns a token for the audience and the account, with the claims of a Pub/Sub push token.
func (i *Issuer) Token(audience, email string) (string, error) {
	sign := func(context.Context) (string, time.Duration, error) {
		token, err := i.sign(audience, email)
		return token, tokenReuse, err
	}
	return i.tokens.Get(context.Background(), audience+" "+email, sign)
}

func (i *Issuer) sign(audience, email string) (string, error) {
	now := i.now()
	sum := sha256.Sum256([]byte(email))
	subject := new(big.Int).SetBytes(sum[:8]).String() // the id of an account is a number
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": "https://accounts.google.com", "aud": audience, "azp": subject, "sub": subject,
		"email": email, "email_verified": true,
		"iat": now.Unix(), "exp": now.Add(tokenLife).Unix(),
	})
	token.Header["kid"] = i.kid
	signed, err := token.SignedString(i.key)
	if err != nil {
		return "", fmt.Errorf("standin: signing a token: %w", err)
	}
	return signed, nil
}

// ServeHTTP serves the key set.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Cache-Control", "public, max-age=3600")
	_, _ = w.Write(i.keys)
}

// Subscription configures one subscription, in the terms of google_pubsub_subscription.
type Subscription struct {
	ID    string
	Topic string
	// Path is the path of the push endpoint. If it is empty, messages are held (see Simulator.Held).
	Path    string
	Ordered bool
	// Filter lets messages through; its zero value lets through all.
	Filter                         routing.Filter
	AckDeadline                    time.Duration
	MinimumBackoff, MaximumBackoff time.Duration
	// DeadLetterTopic and MaxDeliveryAttempts are the dead-letter policy; an empty topic means none.
	DeadLetterTopic     string
	MaxDeliveryAttempts int
	Retention           time.Duration
}

// Topology lists the subscriptions of the queues, as they are made on Google Cloud: the push subscription of
// each queue, and for each dead-letter topic the hold and the push subscription that feeds the store.
func Topology(queues []catalog.Queue) (all []Subscription) {
	idOf := func(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
	for _, q := range queues {
		_, subscriptions := pubsub.Target{}.Plan(q)
		for _, of := range subscriptions {
			one := Subscription{
				ID: idOf(of.Name), Topic: idOf(of.Topic), Path: of.PushConfig.GetPushEndpoint(),
				Ordered:             of.EnableMessageOrdering,
				AckDeadline:         time.Duration(of.AckDeadlineSeconds) * time.Second,
				MinimumBackoff:      of.RetryPolicy.GetMinimumBackoff().AsDuration(),
				MaximumBackoff:      of.RetryPolicy.GetMaximumBackoff().AsDuration(),
				DeadLetterTopic:     idOf(of.DeadLetterPolicy.GetDeadLetterTopic()),
				MaxDeliveryAttempts: int(of.DeadLetterPolicy.GetMaxDeliveryAttempts()),
				Retention:           of.MessageRetentionDuration.AsDuration(),
			}
			if one.ID == q.PushSubscription() {
				one.Filter = q.Filter()
			}
			// queues may share a dead-letter topic
			if !slices.ContainsFunc(all, func(other Subscription) bool { return other.ID == one.ID }) {
				all = append(all, one)
			}
		}
	}
	return all
}
