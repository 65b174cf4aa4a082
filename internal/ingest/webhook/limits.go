package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"billhook/catalog"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// admitted counts a message for each queue that it reaches, until one refuses it.
func (s *Service) admitted(ctx context.Context, from *source, e *event) error {
	for i := range e.queues {
		q := &e.queues[i]
		if sender := from.limiters[q.ID]; sender != nil && !sender.AllowN(s.config.Now(), 1) {
			return errRate
		}
		if s.limits == nil {
			continue
		}
		user := ""
		if len(q.Rate.User) > 0 {
			a := e.body.Attributes()
			a.UID = cmp.Or(e.uid, a.UID)
			user = e.body.OrderingKey(q.Rate.User, &a)
		}
		if err := s.limits.Admit(ctx, *q, user); err != nil {
			return err
		}
	}
	return nil
}

const (
	// mostUsers bounds the users that are counted in one second; further ones are not limited.
	mostUsers = 10_000
	// backlogEvery is how long a count of the backlogs is used.
	backlogEvery = 10 * time.Second
	// fullAfter is the number of seconds after which a message for a full queue is to be sent again.
	fullAfter = 60
)

var (
	errRate = refusals.Add(http.StatusTooManyRequests, "rate_limited",
		"The queue takes no more messages of this sender now; send it again later.", 1)
	errQueueRate = refusals.Add(http.StatusTooManyRequests, "queue_rate_limited",
		"The queue takes no more messages in this second; send it again later.", 1)
	errUserRate = refusals.Add(http.StatusTooManyRequests, "user_rate_limited",
		"The queue takes no more messages of this user in this second; send it again later.", 1)
	errQueueFull = refusals.Add(http.StatusTooManyRequests, "queue_full",
		"Too many messages wait on the queue; keep this one and send it again later.", fullAfter)
)

// Limits apply the catalog's rates and bounds to messages. They are safe for concurrent use.
type Limits struct {
	config Config

	mu sync.Mutex
	// limits has the limits of queues and users in one second of the clock, by name.
	limits map[string]*limit
	second int64

	backlogs backlog.Counted
	readAt   time.Time
}

// NewLimits returns limits that have counted nothing yet.
func NewLimits(config Config) *Limits { return &Limits{config: config, limits: map[string]*limit{}} }

// Admit reports whether a message for the queue may be published now; the error is a *serve.Problem that says
// when to send it again. user may be empty. A limit whose state is unknown refuses nothing. The user's limit
// is counted first, so that one user cannot use up the queue's.
func (l *Limits) Admit(ctx context.Context, q catalog.Queue, user string) error {
	switch {
	case l.isFull(ctx, q):
		return errQueueFull
	case q.Rate.PerUser > 0 && user != "" && !l.within(ctx, q, user, q.Rate.PerUser):
		return errUserRate
	case q.Rate.PerSecond > 0 && !l.within(ctx, q, "", q.Rate.PerSecond):
		return errQueueRate
	}
	return nil
}

// within counts a message for a limit of a queue or its user, and reports whether it is within the limit.
func (l *Limits) within(ctx context.Context, q catalog.Queue, user string, perSecond int) bool {
	name := q.ID
	if user != "" {
		sum := sha256.Sum256([]byte(user)) // so that no document names the user
		name += "~" + hex.EncodeToString(sum[:16])
	}
	of := l.limit(name, perSecond)
	if of == nil {
		return true
	}
	ok, err := of.take(ctx)
	if err != nil {
		l.unknown(ctx, q, "rate", err)
	}
	return ok
}

// unknown counts a message that was admitted while a limit's state was unknown.
func (l *Limits) unknown(ctx context.Context, q catalog.Queue, limit string, err error) {
	l.config.Metrics.Unlimited(q.ID, limit)
	l.config.Log.LogAttrs(ctx, slog.LevelWarn, "limit not known", slog.String("queue", q.ID),
		slog.String("limit", limit), slog.String("cause", err.Error()))
}

// limit returns a name's limit in this second; nil if too many users are counted.
func (l *Limits) limit(name string, perSecond int) *limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	// If a clock is set back, its last second continues.
	if now := l.config.Now().Unix(); now > l.second {
		clear(l.limits)
		l.second = now
	}
	if l.limits[name] == nil && (len(l.limits) < mostUsers || !strings.Contains(name, "~")) {
		l.limits[name] = newLimit(&l.config, name, perSecond, l.second)
	}
	return l.limits[name]
}

// isFull reports whether the queue has as many waiting messages as it may have.
func (l *Limits) isFull(ctx context.Context, q catalog.Queue) bool {
	if q.MaxBacklog.OnFull != catalog.RefuseMore {
		return false
	}
	now := l.config.Now()
	l.mu.Lock()
	counted, due := l.backlogs, now.Sub(l.readAt) >= backlogEvery
	if due {
		l.readAt = now // meanwhile, other calls use the older count
	}
	l.mu.Unlock()
	if due {
		alone, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
		read, err := backlog.Read(alone, l.config.Store)
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

// BlocksCollection has a document for each claimed block of a second; a TTL policy removes it.
const BlocksCollection = "rateBlocks"

const (
	// blocksASecond bounds the number of blocks of a limit.
	blocksASecond = 50
	// freeShare: an instance may use perSecond/freeShare messages, at least 1, without the store.
	freeShare = 100
	// growth: an instance claims at once 1/growth of the blocks that it has claimed in the second.
	growth = 8
	// tries is how often an instance tries to claim blocks while others claim theirs.
	tries = 3
	// claimTime bounds the wait for the store, which is part of the answer.
	claimTime = 250 * time.Millisecond
	keptFor   = time.Minute
)

// limit admits a number of messages in one second of the clock, over all instances that share a store. The
// second is cut into blocks: who creates a block's document has its share, so none is written twice.
type limit struct {
	config    *Config
	perSecond int
	second    int64
	// prefix begins the ids of its blocks.
	prefix string

	// mu is held during the commit, too: until it ends, other callers have nothing left to use.
	mu sync.Mutex
	// left may still be used; taken counts the claimed blocks.
	left, taken int
	// open has the blocks that are not known to be claimed, beginning with a random one.
	open []int
	// unknown: the store did not answer, so nothing is refused in this second.
	unknown bool
}

func newLimit(config *Config, name string, perSecond int, second int64) *limit {
	rest := name + "-" + strconv.FormatInt(second, 10) + "-"
	sum := sha256.Sum256([]byte(rest)) // ids that rise would make one range of the database a hot spot
	l := &limit{
		config: config, perSecond: perSecond, second: second, prefix: hex.EncodeToString(sum[:4]) + "-" + rest,
		left: max(1, perSecond/freeShare), open: make([]int, min(perSecond, blocksASecond)),
	}
	first := rand.IntN(len(l.open)) //nolint:gosec // at random, so that instances try different blocks
	for i := range l.open {
		l.open[i] = (first + i) % len(l.open)
	}
	return l
}

// take counts a message, and reports whether it is within the limit. If that is unknown, ok is true.
func (l *limit) take(ctx context.Context) (ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 && !l.unknown {
		err = l.more(ctx)
		l.unknown = err != nil
	}
	if l.left == 0 {
		return l.unknown, err
	}
	l.left--
	return true, nil
}

// more claims blocks, unless others have claimed them all.
func (l *limit) more(ctx context.Context) error {
	// All waiting callers share the claim, so none of them may cancel it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
	defer cancel()
	n := min(l.perSecond, blocksASecond)
	for range tries {
		wanted := l.open[:min(max(1, l.taken/growth), len(l.open))]
		if len(wanted) == 0 {
			return nil
		}
		share, writes := 0, make([]store.Write, len(wanted))
		for i, block := range wanted {
			share += (block+1)*l.perSecond/n - block*l.perSecond/n // the shares add up to the limit
			key := store.Key{Collection: BlocksCollection, ID: fmt.Sprintf("%s%03d", l.prefix, block)}
			writes[i] = store.Create(key, map[string]any{"expire_at": time.Unix(l.second, 0).UTC().Add(keptFor)})
		}
		_, err := l.config.Blocks.Commit(ctx, writes)
		switch {
		case err == nil:
			l.left, l.taken, l.open = share, l.taken+len(wanted), l.open[len(wanted):]
			return nil
		case errors.Is(err, store.ErrExists):
			err = l.closeTaken(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// closeTaken removes the blocks that other instances have claimed from the open ones.
func (l *limit) closeTaken(ctx context.Context) error {
	of := store.Query{Collection: BlocksCollection, IDPrefix: l.prefix, Limit: blocksASecond}
	page, err := l.config.Blocks.Query(ctx, of)
	for _, doc := range page.Documents {
		if block, err := strconv.Atoi(strings.TrimPrefix(doc.Key.ID, l.prefix)); err == nil {
			l.open = slices.DeleteFunc(l.open, func(open int) bool { return open == block })
		}
	}
	return err
}
