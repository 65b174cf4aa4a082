// Package standin has stand-ins within one process: for Pub/Sub with push subscriptions, for the issuer of
// push tokens, and for the services that Billhook calls. It has behaviour that Google documents for
// production but its emulators lack. Serve it only on the loopback address.
package standin

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/gcp/pubsub"
)

// Broker is Pub/Sub in this process: the client library's in-memory gRPC server on loopback takes publishes
// and passes them to the simulator. The simulator keeps and confirms them; the server keeps no messages.
type Broker struct {
	*Simulator
	server *pstest.Server
}

// NewBroker starts a broker.
func NewBroker(config SimulatorConfig) (*Broker, error) {
	b := &Broker{Simulator: NewSimulator(config)}
	b.server = pstest.NewServerWithAddress("127.0.0.1:0",
		pstest.ServerReactorOption{FuncName: "Publish", Reactor: b})
	// The server has the topics too, so that a client can look them up.
	for _, id := range slices.Sorted(maps.Keys(b.topics)) {
		topic := &pubsubpb.Topic{Name: "projects/" + config.ProjectID + "/topics/" + id}
		if _, err := b.server.GServer.CreateTopic(context.Background(), topic); err != nil {
			return nil, errors.Join(fmt.Errorf("standin: topic %s: %w", id, err), b.Close())
		}
	}
	return b, nil
}

// Addr returns the address of the gRPC server, in the form of PUBSUB_EMULATOR_HOST.
func (b *Broker) Addr() string { return b.server.Addr }

// Close stops the server and the simulator.
func (b *Broker) Close() error {
	return errors.Join(b.server.Close(), b.Simulator.Close())
}

var _ pstest.Reactor = (*Broker)(nil)

// React implements pstest.Reactor: it passes publishes to the simulator.
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
	// A topic of another project is not found.
	topic := strings.TrimPrefix(publish.GetTopic(), "projects/"+b.config.ProjectID+"/topics/")
	ids, err := b.publish(context.Background(), topic, messages)
	code := codes.Unavailable
	switch {
	case err == nil:
		return true, &pubsubpb.PublishResponse{MessageIds: ids}, nil
	case errors.Is(err, contract.ErrTopicMissing):
		code = codes.NotFound
	case errors.Is(err, contract.ErrLimit):
		code = codes.InvalidArgument
	}
	return true, &pubsubpb.PublishResponse{}, status.Error(code, err.Error())
}

// pushBody is Pub/Sub's wrapped push body. As in production, ids and times have two names each.
type pushBody struct {
	Message      pushedMessage `json:"message"`
	Subscription string        `json:"subscription"`
	// DeliveryAttempt is set only with a dead-letter policy.
	DeliveryAttempt int `json:"deliveryAttempt,omitzero"`
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

// maxAnswerBytes bounds how much of an answer is read so that its connection can be reused.
const maxAnswerBytes = 64 << 10

// send pushes a message and reports whether an answer acknowledges it before the ack deadline.
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
	encoded, _ := json.Marshal(body, jsontext.AllowInvalidUTF8(true)) // it has texts and numbers alone
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
	// The transport follows no redirect: Pub/Sub treats it as a failure.
	response, err := s.client.Transport.RoundTrip(request)
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

// Issuer stands in for Google's token service. It signs push tokens with its own key and serves the public
// key as a JSON Web Key Set. A worker whose keys' URL points here verifies tokens as in production. It is
// safe for concurrent use.
type Issuer struct {
	now  func() time.Time
	key  *rsa.PrivateKey
	kid  string
	keys []byte
	// tokens has the tokens by audience and account.
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
	keys, _ := json.Marshal(map[string]any{"keys": []map[string]string{{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid,
		"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
	}}})
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
	subject := new(big.Int).SetBytes(sum[:8]).String() // an account's id is a number
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
	// Path is the path of the push endpoint; empty: messages are held (see Simulator.Held).
	Path    string
	Ordered bool
	// Filter selects messages; its zero value selects all.
	Filter                         routing.Filter
	AckDeadline                    time.Duration
	MinimumBackoff, MaximumBackoff time.Duration
	// DeadLetterTopic and MaxDeliveryAttempts are the dead-letter policy; an empty topic means none.
	DeadLetterTopic     string
	MaxDeliveryAttempts int
	Retention           time.Duration
}

// Topology lists the queues' subscriptions as on Google Cloud: the push subscription of each queue, and for
// each dead-letter topic the holding subscription and the push subscription that feeds the store.
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
