package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"billhook/catalog"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// Admission limits what the webhook service takes.
type Admission interface {
	// Admit reports whether a message for the queue may be published now; the error is a *serve.Problem that
	// says when to come again. user may be empty. What cannot be known refuses nothing.
	Admit(ctx context.Context, q catalog.Queue, user string) error
}

// admitted counts a message for each queue that it reaches, up to the first that refuses.
func (s *Service) admitted(ctx context.Context, from *source, e *event) error {
	for i := range e.queues {
		q := &e.queues[i]
		if sender := from.limiters[q.ID]; sender != nil && !sender.AllowN(s.config.Now(), 1) {
			return errRate
		}
		if s.config.Admission == nil {
			continue
		}
		user := ""
		if len(q.Rate.User) > 0 {
			a := e.body.Attributes()
			a.UID = cmp.Or(e.uid, a.UID)
			user = e.body.OrderingKey(q.Rate.User, &a)
		}
		if err := s.config.Admission.Admit(ctx, *q, user); err != nil {
			return err
		}
	}
	return nil
}

const (
	// mostUsers bounds the users that are counted in one second; more are not limited each for itself.
	mostUsers = 10_000
	// backlogEvery is how long the webhook service goes by what it has read of the backlogs.
	backlogEvery = 10 * time.Second
	// fullAfter is when a message that finds its queue full is to come again.
	fullAfter = 60
)

var (
	errRate      = serve.Refuse(http.StatusTooManyRequests, "rate_limited", "The queue takes no more messages of this sender now; send it again later.").After(1)
	errQueueRate = serve.Refuse(http.StatusTooManyRequests, "queue_rate_limited", "The queue takes no more messages in this second; send it again later.").After(1)
	errUserRate  = serve.Refuse(http.StatusTooManyRequests, "user_rate_limited", "The queue takes no more messages of this user in this second; send it again later.").After(1)
	errQueueFull = serve.Refuse(http.StatusTooManyRequests, "queue_full", "Too many messages wait on the queue; keep this one and send it again later.").After(fullAfter)
)

// LimitsConfig is what Limits are made of. Every field is required.
type LimitsConfig struct {
	// Blocks is what instances of the webhook service share to count together.
	Blocks store.Store
	// Backlogs has what a task has counted.
	Backlogs store.Getter
	Log      *slog.Logger
	Metrics  *telemetry.Metrics
	Now      func() time.Time
	// Dice returns 0 <= n < most, such as rand.IntN: instances look for blocks at different places.
	Dice func(most int) int
}

// Limits hold messages to the catalog's rates and bounds. They are safe for concurrent use.
type Limits struct {
	config LimitsConfig

	mu     sync.Mutex
	queues map[string]*limit
	// users are those of the second.
	users  map[string]*limit
	second int64

	backlogs backlog.Counted
	// readAt is when the backlogs were last asked for.
	readAt time.Time
}

var _ Admission = (*Limits)(nil)

// NewLimits returns limits that have counted nothing yet.
func NewLimits(config LimitsConfig) *Limits {
	return &Limits{config: config, queues: map[string]*limit{}, users: map[string]*limit{}}
}

// Admit counts the user's limit first, so that one user does not use up what is for all.
func (l *Limits) Admit(ctx context.Context, q catalog.Queue, user string) error {
	if l.isFull(ctx, q) {
		return errQueueFull
	}
	if q.Rate.PerUser > 0 && user != "" {
		if limit := l.ofUser(q, user); limit != nil && !l.take(ctx, q, limit) {
			return errUserRate
		}
	}
	if q.Rate.PerSecond > 0 && !l.take(ctx, q, l.ofQueue(q)) {
		return errQueueRate
	}
	return nil
}

func (l *Limits) take(ctx context.Context, q catalog.Queue, limit *limit) bool {
	ok, err := limit.Take(ctx)
	if err != nil {
		l.unknown(ctx, q, "rate", err)
	}
	return ok
}

// unknown reports that a message was taken without knowing whether a limit lets it through.
func (l *Limits) unknown(ctx context.Context, q catalog.Queue, limit string, err error) {
	l.config.Metrics.Unlimited(q.ID, limit)
	l.config.Log.LogAttrs(ctx, slog.LevelWarn, "limit not known", slog.String("queue", q.ID), slog.String("limit", limit), slog.String("cause", err.Error()))
}

func (l *Limits) ofQueue(q catalog.Queue) *limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.named(l.queues, q.ID, q.Rate.PerSecond)
}

// ofUser returns the limit of a user of the queue; nil where too many are counted already.
func (l *Limits) ofUser(q catalog.Queue, user string) *limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second := l.config.Now().Unix(); second > l.second {
		l.users, l.second = map[string]*limit{}, second
	}
	sum := sha256.Sum256([]byte(user)) // whose it is stands in no document
	return l.named(l.users, q.ID+"~"+hex.EncodeToString(sum[:16]), q.Rate.PerUser)
}

func (l *Limits) named(limits map[string]*limit, name string, perSecond int) *limit {
	if limits[name] == nil && len(limits) < mostUsers {
		limits[name] = newLimit(l.config.Blocks, name, perSecond, l.config.Now, l.config.Dice)
	}
	return limits[name]
}

// isFull reports whether as many messages wait on the queue as it may have.
func (l *Limits) isFull(ctx context.Context, q catalog.Queue) bool {
	if q.MaxBacklog.OnFull != catalog.RefuseMore {
		return false
	}
	now := l.config.Now()
	l.mu.Lock()
	counted, due := l.backlogs, now.Sub(l.readAt) >= backlogEvery
	if due {
		l.readAt = now // others go by what there is meanwhile
	}
	l.mu.Unlock()
	if due {
		alone, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
		read, err := backlog.Read(alone, l.config.Backlogs)
		cancel()
		if err != nil {
			l.unknown(ctx, q, "backlog", err)
		} else {
			l.mu.Lock()
			l.backlogs, counted = read, read
			l.mu.Unlock()
		}
	}
	held, known := counted.Of(q.ID, now)
	return known && held.Messages >= int64(q.MaxBacklog.Messages)
}
