package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// The bounds of a tail.
const (
	TailEvery   = 2 * time.Second
	TailLongest = 10 * time.Minute
	Tails       = 8
	// Of lines: a tail begins with so many, a look lists so many, and reads so many again that have not ended.
	tailBegins, tailMost, tailFollows = 20, 100, 50
	// tailOverlap is how far behind the newest line a look begins: a record is committed up to so long
	// after its time, as instances and their clocks go.
	tailOverlap   = 30 * time.Second
	tailPatience  = 4 * time.Second
	tailRemembers = 1000 // lines
)

// Look is what a tail has found since the look before.
type Look struct {
	// ID is where a tail goes on behind this look, for Last-Event-ID.
	ID string `json:"-"`
	// Items are the lines that are new or have changed, the oldest first.
	Items []Line `json:"items"`
	// Skipped: more has come in than a look lists. GET /v1/ops/events has the rest.
	Skipped bool `json:"skipped"`
	// Problem: the look has failed, and the next one covers its time.
	Problem *serve.Problem `json:"-"`
}

type tails struct {
	mu     sync.Mutex
	open   int
	ending chan struct{}
	ended  bool
}

func (t *tails) enter() (ending <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return nil, serve.Refuse(http.StatusServiceUnavailable, "shutting_down", "This instance is shutting down; ask again.").After(1)
	case t.open == Tails:
		return nil, serve.Refuse(http.StatusTooManyRequests, "tails_many",
			fmt.Sprintf("This instance serves %d tails already; close one, or ask again later.", Tails)).After(30)
	}
	if t.ending == nil {
		t.ending = make(chan struct{})
	}
	t.open++
	return t.ending, nil
}

func (t *tails) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
}

// Drain ends the tails and admits no other: a process that drains waits for its requests.
func (a *API) Drain() {
	a.tails.mu.Lock()
	defer a.tails.mu.Unlock()
	if !a.tails.ended && a.tails.ending != nil {
		close(a.tails.ending)
	}
	a.tails.ended = true
}

// Tail shows what comes in and what becomes of it, on all instances, until ctx or the tail ends. It
// calls show after each look, also where the look has found nothing or has failed. query has the
// parameters of GET /v1/ops/events/tail, and after the ID of a look of an earlier tail. The error is a
// refusal, the store's at the first look, or show's.
func (a *API) Tail(ctx context.Context, query, after string, show func(Look) error) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return console.Refuse(console.Malformed, "query_invalid", "The query string is malformed.")
	}
	filter, err := console.Read[EventFilter](values, a.Now())
	if err != nil {
		return err
	}
	f := follower{Reads: a.Reads, byStatus: filter.Status != ""}
	if f.equal, err = a.equal(filter); err != nil {
		return err
	}
	if err := f.resume(after, a.Now()); err != nil {
		return err
	}
	ending, err := a.tails.enter()
	if err != nil {
		return err
	}
	defer a.tails.leave()
	end := a.Now().Add(TailLongest)
	look, err := f.look(ctx)
	if err != nil {
		return err
	}
	for {
		if err := show(look); err != nil {
			return err
		}
		tick, stop := a.Timer(TailEvery)
		select {
		case now := <-tick:
			if !now.Before(end) {
				return nil
			}
		case <-ending:
			stop()
			return nil
		case <-ctx.Done():
			stop()
			return nil
		}
		if look, err = f.look(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			look = Look{Problem: a.problem(ctx, err)}
		}
	}
}

type follower struct {
	Reads
	equal    map[string]any
	byStatus bool
	// looked is when the last look began; zero: there was none. newest is the time of the newest line,
	// and oldest that of the oldest one that is followed, as far as they are known.
	looked, newest, oldest time.Time
	// resumed: the lines that an earlier tail has shown are not known.
	resumed bool
	// known are the lines that were shown or passed by, and followed those of them that have not ended.
	known    map[string]state
	followed []Line
}

type state struct {
	status   dedupe.Status
	attempts int64
	updated  int64
}

func stateOf(l Line) state { return state{l.Status, l.Attempts, l.UpdatedAt.UnixMicro()} }

var errTailID = serve.Refuse(http.StatusBadRequest, "last_event_id_invalid", "Last-Event-ID is the id of an earlier tail; start again without one.")

func (f *follower) resume(after string, now time.Time) error {
	f.known = map[string]state{}
	if after == "" {
		return nil
	}
	parts := strings.Split(after, ".")
	if len(parts) != 3 {
		return errTailID
	}
	for i, into := range []*time.Time{&f.looked, &f.newest, &f.oldest} {
		micros, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil || micros < 0 {
			return errTailID
		}
		if micros == 0 {
			continue
		}
		if *into = time.UnixMicro(micros).UTC(); into.After(now) {
			*into = now.UTC()
		}
	}
	f.resumed = true
	return nil
}

func (f *follower) id() string {
	micros := func(t time.Time) int64 { return max(t.UnixMicro(), 0) } // 0 is none
	return fmt.Sprintf("%d.%d.%d", micros(f.looked), micros(f.newest), micros(f.oldest))
}

// look lists the newest lines, and reads those again that have not ended. The database reads at most
// tailMost lines, what dedupe.List reads beside them, and tailFollows documents.
func (f *follower) look(ctx context.Context) (Look, error) {
	ctx, cancel := context.WithTimeout(ctx, tailPatience)
	defer cancel()
	now := f.Now().UTC().Truncate(time.Microsecond)
	listed, more, err := f.list(ctx)
	if err != nil {
		return Look{}, err
	}
	again, err := f.again(ctx, listed)
	if err != nil {
		return Look{}, err
	}
	look := Look{Items: f.news(listed, again)}
	look.Skipped = more && !f.byStatus && !f.looked.IsZero() && listed[len(listed)-1].CreatedAt.After(f.newest)
	slices.SortStableFunc(look.Items, func(a, b Line) int {
		return cmp.Or(a.UpdatedAt.Compare(b.UpdatedAt), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Record(), b.Record()))
	})
	f.follow(listed, again)
	f.looked, f.resumed = now, false
	look.ID = f.id()
	return look, nil
}

// news are the lines that no earlier look has shown as they are now. The first look shows the newest.
func (f *follower) news(listed, again []Line) []Line {
	news := []Line{}
	for i, l := range slices.Concat(listed, again) {
		before, known := f.known[l.Record()]
		f.known[l.Record()] = stateOf(l)
		switch {
		case f.looked.IsZero() && i >= tailBegins:
		case known && before == stateOf(l):
		case !known && !f.looked.IsZero() && l.UpdatedAt.Before(f.looked.Add(-tailOverlap)): // an earlier look had it, or a tail before it
		default:
			news = append(news, l)
		}
	}
	return news
}

func (f *follower) list(ctx context.Context) (lines []Line, more bool, err error) {
	page := dedupe.Listing{Equal: f.equal, Limit: tailMost}
	if !f.byStatus && !f.newest.IsZero() {
		page.Since = f.newest.Add(-tailOverlap)
		if f.resumed && f.oldest.Before(page.Since) {
			page.Since = f.oldest
		}
	}
	lines, last, err := f.Events(ctx, page)
	return lines, !last.IsZero(), err
}

func (f *follower) again(ctx context.Context, listed []Line) ([]Line, error) {
	read := slices.DeleteFunc(slices.Clone(f.followed), func(l Line) bool {
		return slices.ContainsFunc(listed, func(one Line) bool { return one.Record() == l.Record() })
	})
	found := make([]Line, len(read))
	err := each(ctx, len(read), func(ctx context.Context, i int) error {
		doc, err := f.Store.Get(ctx, dedupe.Key(read[i].Queue, read[i].Tenant, read[i].EventID))
		if errors.Is(err, store.ErrNotFound) {
			return nil // it was cleaned away
		}
		if err != nil {
			return err
		}
		record, err := dedupe.FromDocument(doc)
		found[i] = line(record)
		return err
	})
	return slices.DeleteFunc(found, func(l Line) bool { return l.EventID == "" }), err
}

// follow keeps the newest lines that have not ended for the next look.
func (f *follower) follow(listed, again []Line) {
	f.followed = nil
	for _, l := range slices.Concat(listed, again) {
		if l.CreatedAt.After(f.newest) {
			f.newest = l.CreatedAt
		}
		if l.Status == dedupe.Processing || l.Status == dedupe.Failed {
			f.followed = append(f.followed, l)
		}
	}
	slices.SortStableFunc(f.followed, func(a, b Line) int { return b.CreatedAt.Compare(a.CreatedAt) })
	f.followed = f.followed[:min(len(f.followed), tailFollows)]
	f.oldest = f.newest
	if n := len(f.followed); n > 0 {
		f.oldest = f.followed[n-1].CreatedAt
	}
	if len(f.known) > tailRemembers {
		recent := map[string]state{}
		for _, l := range slices.Concat(listed, f.followed) {
			recent[l.Record()] = f.known[l.Record()]
		}
		maps.DeleteFunc(f.known, func(key string, _ state) bool { _, keep := recent[key]; return !keep })
	}
}

// tail answers GET /v1/ops/events/tail with server-sent events: "lines" of a look that has found some or is the first after
// a failure, "problem" where one has failed, and a comment where nothing has happened.
func (a *API) tail(w http.ResponseWriter, r *http.Request) {
	stream, failed := NewStream(w), false
	err := a.Tail(r.Context(), r.URL.RawQuery, r.Header.Get("Last-Event-ID"), func(look Look) error {
		switch {
		case look.Problem != nil:
			failed = true
			return stream.Send("", "problem", look.Problem)
		case len(look.Items) == 0 && !look.Skipped && !failed:
			return stream.Beat()
		}
		failed = false
		return stream.Send(look.ID, "lines", look)
	})
	if err != nil && !stream.Begun() {
		a.problem(r.Context(), err).Write(w)
	}
}
