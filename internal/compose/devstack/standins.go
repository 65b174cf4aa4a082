package devstack

import (
	"context"
	"errors"
	"time"

	"billhook/internal/compose/worker"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/standin"
)

// standIns returns the address of the broker, and how the worker verifies its tokens.
func (s *Stack) standIns(
	ctx, _ context.Context, config Config,
) (broker string, tokens auth.Config, err error) {
	issuer, err := standin.NewIssuer(time.Now)
	if err != nil {
		return "", tokens, err
	}
	keys, err := s.listen(ctx, "", "0")
	if err != nil {
		return "", tokens, err
	}
	s.serveStandIn(keys, issuer)
	s.token = func() (string, error) { return issuer.Token(audience, serviceAccount) }
	s.Broker, err = standin.NewBroker(standin.SimulatorConfig{
		ProjectID: config.ProjectID, Subscriptions: standin.Topology(config.Catalog.Enabled()),
		Topics: config.Catalog.OtherTopics(), Token: s.token,
	})
	if err != nil {
		return "", tokens, err
	}
	if config.BrokerPath != "" {
		if s.Loaded, err = s.Broker.Load(config.BrokerPath); err != nil {
			return "", tokens, errors.Join(err, s.Broker.Close())
		}
	}
	s.closers = append(s.closers, s.Broker.Close)
	s.subscriptions = s.Broker
	store, err := boltstore.Open(config.StorePath)
	if err != nil {
		return "", tokens, err
	}
	s.closers, s.Store = append(s.closers, store.Close), store
	tokens = auth.Config{Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: serviceAccount}
	tokens.KeysURL = urlOf(keys)
	return s.Broker.Addr(), tokens, nil
}

func (s *Stack) emulators(
	ctx, life context.Context, config Config,
) (broker string, tokens auth.Config, err error) {
	pubSub, database, err := config.Emulators.Start(ctx)
	if err != nil {
		return "", tokens, err
	}
	s.closers = append(s.closers, pubSub.Stop, database.Stop)
	names := pubsub.Names{ProjectID: config.ProjectID, Installation: config.Installation}
	to := pubsub.Target{Names: names, PushBaseURL: s.WorkerURL, Emulator: true}
	options := pubsub.EmulatorOptions(pubSub.Addr())
	if _, err := pubsub.Provision(ctx, config.Catalog, to, options...); err != nil {
		return "", tokens, err
	}
	subscriptions, err := pubsub.NewSwitch(life, to, options...)
	if err != nil {
		return "", tokens, err
	}
	s.closers, s.subscriptions = append(s.closers, subscriptions.Close), subscriptions
	s.doctor = worker.Examiner(subscriptions, config.Catalog)
	store, err := firestore.NewEmulated(life, database.Addr(), config.ProjectID, config.Installation)
	if err != nil {
		return "", tokens, err
	}
	s.closers, s.Store = append(s.closers, store.Close), store
	return pubSub.Addr(), auth.Config{Mode: auth.ModeNone, EmulatorHost: true}, nil
}
