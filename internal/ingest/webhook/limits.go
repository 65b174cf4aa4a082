package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
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

// admitted counts a message for each queue that it reaches, up to the first that refuses.
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
	// mostUsers bounds the users that are counted in one second; more are not limited each for itself.
	mostUsers = 10_000
	// backlogEvery is how long the webhook service goes by what it has read of the backlogs.
	backlogEvery = 10 * time.Second
	// fullAfter is when a message that finds its queue full is to come again.
	fullAfter = 60
)

var (
	errRate      = refusals.Add(http.StatusTooManyRequests, "rate_limited", "The queue takes no more messages of this sender now; send it again later.", 1)
	errQueueRate = refusals.Add(http.StatusTooManyRequests, "queue_rate_limited", "The queue takes no more messages in this second; send it again later.", 1)
	errUserRate  = refusals.Add(http.StatusTooManyRequests, "user_rate_limited", "The queue takes no more messages of this user in this second; send it again later.", 1)
	errQueueFull = refusals.Add(http.StatusTooManyRequests, "queue_full", "Too many messages wait on the queue; keep this one and send it again later.", fullAfter)
)

// Limits hold messages to the catalog's rates and bounds. They are safe for concurrent use.
type Limits struct {
	config Config

	mu     sync.Mutex
	queues map[string]*limit
	users  map[string]*limit
	second int64

	backlogs backlog.Counted
	readAt   time.Time
}

// NewLimits returns limits that have counted nothing yet.
func NewLimits(config Config) *Limits {
	return &Limits{config: config, queues: map[string]*limit{}, users: map[string]*limit{}}
}

// Admit reports whether a message for the queue may be published now; the error is a *serve.Problem that says when
// to come again. user may be empty. What cannot be known refuses nothing. The user's limit is counted first, so
// that one user does not use up what is for all.
func (l *Limits) Admit(ctx context.Context, q catalog.Queue, user string) error {
	switch {
	case l.isFull(ctx, q):
		return errQueueFull
	case q.Rate.PerUser > 0 && user != "" && !l.within(ctx, q, l.ofUser(q, user)):
		return errUserRate
	case q.Rate.PerSecond > 0 && !l.within(ctx, q, l.named(l.queues, q.ID, q.Rate.PerSecond)):
		return errQueueRate
	}
	return nil
}

// within counts one of a limit, and reports whether it is within it.
func (l *Limits) within(ctx context.Context, q catalog.Queue, of *limit) bool {
	if of == nil {
		return true
	}
	ok, err := of.take(ctx)
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

// ofUser returns the limit of a user of the queue.
func (l *Limits) ofUser(q catalog.Queue, user string) *limit {
	l.mu.Lock()
	if second := l.config.Now().Unix(); second > l.second {
		clear(l.users)
		l.second = second
	}
	l.mu.Unlock()
	sum := sha256.Sum256([]byte(user)) // whose it is stands in no document
	return l.named(l.users, q.ID+"~"+hex.EncodeToString(sum[:16]), q.Rate.PerUser)
}

// named is the limit of a name; nil where too many are counted already.
func (l *Limits) named(limits map[string]*limit, name string, perSecond int) *limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limits[name] == nil && len(limits) < mostUsers {
		limits[name] = &limit{config: &l.config, name: name, perSecond: perSecond}
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

// BlocksCollection has a document for each block of a second that is taken; a TTL policy removes it.
const BlocksCollection = "rateBlocks"

const (
	// blocksASecond is into how many blocks a limit is cut at most.
	blocksASecond = 50
	// freeShare is the part of a limit that an instance takes without asking.
	freeShare = 100
	// growth is how much an instance takes at once: this part of what it has had in the second.
	growth = 8
	// tries is how often a block is looked for that nobody else has taken meanwhile.
	tries = 3
	// claimTime bounds the wait for the store, which is part of the answer.
	claimTime = 250 * time.Millisecond
	keptFor   = time.Minute
)

// limit lets through so many in a second of the clock, over all instances that share a store. The second is
// cut into blocks: who creates a block's document has its share, so that no document is written twice.
type limit struct {
	config *Config
	// name is the limit's, in the ids of its blocks.
	name string
	// perSecond is what all instances let through together, above 0.
	perSecond int

	// mu is held while the store is asked, too: nobody else has anything to use then.
	mu sync.Mutex
	// second is the one that the rest is of: left may be used, and taken counts the blocks that were asked for.
	second      int64
	left, taken int
	// open are the blocks that nobody is known to have taken.
	open []int
	// unknown: the store did not answer, so nobody is refused in this second.
	unknown bool
}

// take counts one, and reports whether it is within the limit. With an error that is not known, and ok.
func (l *limit) take(ctx context.Context) (ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A clock that is set back goes on in the second that it was in.
	if now := l.config.Now().Unix(); now > l.second {
		l.second, l.left, l.taken, l.open, l.unknown = now, max(1, l.perSecond/freeShare), 0, l.blocks(), false
	}
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

// blocks lists the blocks of a second, from a random one on.
func (l *limit) blocks() []int {
	all := make([]int, min(l.perSecond, blocksASecond))
	first := l.config.Dice(len(all))
	for i := range all {
		all[i] = (first + i) % len(all)
	}
	return all
}

// size is how many a block lets through; together they are the limit.
func (l *limit) size(block int) int {
	n := min(l.perSecond, blocksASecond)
	return (block+1)*l.perSecond/n - block*l.perSecond/n
}

// more takes blocks, unless others have taken them all.
func (l *limit) more(ctx context.Context) error {
	// It is for all that wait, whoever asks.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
	defer cancel()
	for range tries {
		wanted := l.open[:min(max(1, l.taken/growth), len(l.open))]
		if len(wanted) == 0 {
			return nil
		}
		err := l.create(ctx, wanted)
		switch {
		case err == nil:
			for _, block := range wanted {
				l.left += l.size(block)
			}
			l.taken, l.open = l.taken+len(wanted), l.open[len(wanted):]
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

func (l *limit) create(ctx context.Context, blocks []int) error {
	writes := make([]store.Write, len(blocks))
	for i, block := range blocks {
		id := fmt.Sprintf("%s%03d", l.prefix(), block)
		writes[i] = store.Create(store.Key{Collection: BlocksCollection, ID: id}, map[string]any{"expire_at": time.Unix(l.second, 0).UTC().Add(keptFor)})
	}
	_, err := l.config.Blocks.Commit(ctx, writes)
	return err
}

// closeTaken leaves those blocks open that no instance has taken.
func (l *limit) closeTaken(ctx context.Context) error {
	page, err := l.config.Blocks.Query(ctx, store.Query{Collection: BlocksCollection, IDPrefix: l.prefix(), Limit: blocksASecond})
	for _, doc := range page.Documents {
		if block, err := strconv.Atoi(strings.TrimPrefix(doc.Key.ID, l.prefix())); err == nil {
			l.open = slices.DeleteFunc(l.open, func(open int) bool { return open == block })
		}
	}
	return err
}

// prefix begins with a hash: ids that rise would make one range of the database a hot spot.
func (l *limit) prefix() string {
	rest := l.name + "-" + strconv.FormatInt(l.second, 10) + "-"
	sum := sha256.Sum256([]byte(rest))
	return hex.EncodeToString(sum[:4]) + "-" + rest
}
