// Package standin holds the one-process stand-ins for Google Cloud: Pub/Sub with its push
// subscriptions, the issuer of push tokens, and a document store on disk. With them the whole
// system runs where only Go is installed.
//
// It owns the behaviour that production documents and Google's emulators lack. A message ends
// with the process, unless Simulator.Load says where it is kept. It refuses to be more than a stand-in:
// serve it on loopback alone.
package standin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/internal/contract"
)

// Broker is Pub/Sub in this process: the client library's in-memory gRPC server on loopback for
// publishing, and the simulator behind it. A publish is confirmed when the simulator has the
// message. The server keeps none.
type Broker struct {
	*Simulator
	server *pstest.Server
}

// NewBroker starts a broker.
func NewBroker(config SimulatorConfig) (*Broker, error) {
	simulator, err := NewSimulator(config)
	if err != nil {
		return nil, err
	}
	server, err := listen(&intake{simulator: simulator, prefix: "projects/" + config.ProjectID + "/topics/"})
	if err != nil {
		return nil, errors.Join(err, simulator.Close())
	}
	b := &Broker{Simulator: simulator, server: server}
	// A client that looks up a topic finds it.
	for _, id := range slices.Sorted(maps.Keys(simulator.topics)) {
		topic := &pubsubpb.Topic{Name: "projects/" + config.ProjectID + "/topics/" + id}
		if _, err := server.GServer.CreateTopic(context.Background(), topic); err != nil {
			return nil, errors.Join(fmt.Errorf("standin: topic %s: %w", id, err), b.Close())
		}
	}
	return b, nil
}

// listen starts the library's server and turns its panic into an error.
func listen(publish pstest.Reactor) (server *pstest.Server, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("standin: cannot listen on loopback")
		}
	}()
	return pstest.NewServerWithAddress("127.0.0.1:0", pstest.ServerReactorOption{FuncName: "Publish", Reactor: publish}), nil
}

// Addr is the address of the gRPC server, as PUBSUB_EMULATOR_HOST takes it.
func (b *Broker) Addr() string { return b.server.Addr }

// Close stops the server and the simulator.
func (b *Broker) Close() error {
	return errors.Join(b.server.Close(), b.Simulator.Close())
}

// intake handles every publish in place of the server.
type intake struct {
	simulator *Simulator
	prefix    string
}

var _ pstest.Reactor = (*intake)(nil)

// React implements pstest.Reactor.
func (i *intake) React(request any) (handled bool, answer any, err error) {
	publish, ok := request.(*pubsubpb.PublishRequest)
	if !ok {
		return false, nil, nil
	}
	none := &pubsubpb.PublishResponse{}
	topic, ok := strings.CutPrefix(publish.GetTopic(), i.prefix)
	if !ok {
		return true, none, status.Error(codes.NotFound, "no such topic in this project")
	}
	messages := make([]contract.Message, len(publish.GetMessages()))
	for n, m := range publish.GetMessages() {
		messages[n] = contract.Message{Data: m.GetData(), Attributes: m.GetAttributes(), OrderingKey: m.GetOrderingKey()}
	}
	ids, err := i.simulator.publish(context.Background(), topic, messages)
	switch {
	case err == nil:
		return true, &pubsubpb.PublishResponse{MessageIds: ids}, nil
	case errors.Is(err, ErrNoTopic):
		return true, none, status.Error(codes.NotFound, err.Error())
	case errors.Is(err, contract.ErrLimit):
		return true, none, status.Error(codes.InvalidArgument, err.Error())
	default:
		return true, none, status.Error(codes.Unavailable, err.Error())
	}
}
