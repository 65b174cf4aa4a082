package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"billhook/internal/platform/store"
)

// BlocksCollection has a document for each block of a second that is taken; a TTL policy removes it.
const BlocksCollection = "doorBlocks"

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
	// keptFor is after which a block is of no more use.
	keptFor = time.Minute
)

// limit lets through so many in a second of the clock, over all instances that share a store. The second is
// cut into blocks: who creates a block's document has its share, so that no document is written twice.
type limit struct {
	store store.Store
	// name is the limit's, in the ids of its blocks.
	name string
	// perSecond is what all instances let through together, above 0.
	perSecond int
	now       func() time.Time
	// dice returns 0 <= n < most: where an instance begins to look for a block.
	dice func(most int) int

	// asking is held by the one request that asks the store, for all that wait.
	asking chan struct{}
	mu     sync.Mutex
	second share
}

// share is what an instance has of one second.
type share struct {
	unix int64
	// left may be used, and taken counts the blocks that were asked for.
	left, taken int
	// open are the blocks that nobody is known to have taken.
	open []int
	// unknown: the store did not answer, so nobody is refused in this second.
	unknown bool
}

// newLimit returns a limit.
func newLimit(of store.Store, name string, perSecond int, now func() time.Time, dice func(int) int) *limit {
	return &limit{store: of, name: name, perSecond: perSecond, now: now, dice: dice, asking: make(chan struct{}, 1)}
}

// Take counts one, and reports whether it is within the limit. With an error that is not known, and ok.
func (l *limit) Take(ctx context.Context) (ok bool, err error) {
	for {
		if ok, known := l.use(); known {
			return ok, nil
		}
		select {
		case l.asking <- struct{}{}:
		case <-ctx.Done():
			return true, ctx.Err()
		}
		found, err := l.more(ctx)
		<-l.asking
		if err != nil || !found {
			return err != nil, err
		}
	}
}

// use uses one of what is left in this second; known: nobody else has to be asked.
func (l *limit) use() (ok, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A clock that is set back goes on in the second that it was in.
	if now := l.now().Unix(); now > l.second.unix {
		l.second = share{unix: now, left: max(1, l.perSecond/freeShare), open: l.blocks()}
	}
	switch {
	case l.second.unknown:
		return true, true
	case l.second.left > 0:
		l.second.left--
		return true, true
	}
	return false, len(l.second.open) == 0
}

// blocks lists the blocks of a second, from a random one on.
func (l *limit) blocks() []int {
	all := make([]int, min(l.perSecond, blocksASecond))
	first := l.dice(len(all))
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

// more takes blocks, unless another request has; found is false where others have taken them all.
func (l *limit) more(ctx context.Context) (found bool, err error) {
	l.mu.Lock()
	s := l.second
	l.mu.Unlock()
	if s.left > 0 || s.unknown || s.unix < l.now().Unix() {
		return true, nil
	}
	// It is for all that wait, whoever asks.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTime)
	defer cancel()
	open, taken, gained := s.open, 0, 0
	for range tries {
		if len(open) == 0 {
			break
		}
		n := min(max(1, s.taken/growth), len(open))
		if err = l.create(ctx, s.unix, open[:n]); err == nil {
			for _, block := range open[:n] {
				gained += l.size(block)
			}
			taken, open = n, open[n:]
			break
		}
		if !errors.Is(err, store.ErrExists) {
			break
		}
		if open, err = l.stillOpen(ctx, s.unix, open); err != nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.second.unix != s.unix {
		return true, nil // it was about a second that is over
	}
	l.second.left += gained
	l.second.taken += taken
	l.second.open, l.second.unknown = open, err != nil
	return taken > 0, err
}

// create takes all of the blocks, or none.
func (l *limit) create(ctx context.Context, second int64, blocks []int) error {
	writes := make([]store.Write, len(blocks))
	for i, block := range blocks {
		id := fmt.Sprintf("%s%03d", l.prefix(second), block)
		writes[i] = store.Create(store.Key{Collection: BlocksCollection, ID: id}, map[string]any{"expire_at": time.Unix(second, 0).UTC().Add(keptFor)})
	}
	_, err := l.store.Commit(ctx, writes)
	return err
}

// stillOpen returns those of the blocks that nobody has taken.
func (l *limit) stillOpen(ctx context.Context, second int64, blocks []int) ([]int, error) {
	page, err := l.store.Query(ctx, store.Query{Collection: BlocksCollection, IDPrefix: l.prefix(second), Limit: blocksASecond})
	if err != nil {
		return nil, err
	}
	gone := map[int]bool{}
	for _, doc := range page.Documents {
		if block, err := strconv.Atoi(strings.TrimPrefix(doc.Key.ID, l.prefix(second))); err == nil {
			gone[block] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(blocks), func(block int) bool { return gone[block] }), nil
}

// prefix begins with a hash: ids that rise would make one range of the database a hot spot.
func (l *limit) prefix(second int64) string {
	rest := l.name + "-" + strconv.FormatInt(second, 10) + "-"
	sum := sha256.Sum256([]byte(rest))
	return hex.EncodeToString(sum[:4]) + "-" + rest
}
