package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"billhook/internal/console"
	"billhook/internal/pii"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

const (
	// headerKey lets a caller who got no answer repeat a change; headerRepeated marks the stored answer.
	headerKey      = "Idempotency-Key"
	headerRepeated = "Idempotent-Replayed"

	// RequestsCollection holds the answers of changes with a key.
	RequestsCollection = "requests"
	// requestsKept is how long an answer is kept, and requestsTake how long a change may take.
	requestsKept = 24 * time.Hour
	requestsTake = time.Minute
	// maxKept bounds an answer that is kept, in bytes.
	maxKept = 256 << 10
)

var (
	errKey = serve.Refuse(http.StatusBadRequest, "idempotency_key_invalid",
		"An Idempotency-Key has at most 128 of letters, digits and . _ : -, beginning with a letter or digit.")
	errKeyReused = serve.Refuse(http.StatusUnprocessableEntity, "idempotency_key_reused",
		"This Idempotency-Key was given with another request; give each change its own.")
	errUnderWay = serve.Refuse(http.StatusConflict, "request_under_way",
		"The request with this Idempotency-Key is under way; ask again.").After(1)
	errNoOutcome = serve.Refuse(http.StatusConflict, "outcome_unknown", "The request with this "+
		"Idempotency-Key was begun and never ended. Look at what became of it, and give another key.")
	errOnce = serve.Refuse(http.StatusConflict, "answer_shown_once",
		"The request with this Idempotency-Key was done, and its answer is shown once.")
)

// change is a change with an idempotency key, as its document holds it.
type change struct {
	key     store.Key
	Print   string    `store:"print,required"`
	BegunAt time.Time `store:"begun_at,required"`
	Expires time.Time `store:"expire_at,required"`
	// Done: the change was made. Answer is its answer; empty: it is shown once, or too large.
	Done   bool   `store:"done"`
	Answer string `store:"answer,omitzero"`
}

// begin records the first request with a key. For a later one it returns the answer, or the *serve.Problem
// that says why there is none. The change is nil without a key, and for an operation that changes nothing.
func (s *Server) begin(
	ctx context.Context, o console.Operation, in console.Input, key string,
) (_ *change, answer string, err error) {
	if key == "" || o.Needs < console.Reason {
		return nil, "", nil
	}
	if !pii.ID.Valid(key) {
		return nil, "", errKey
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", o.Name, o.URL(in), in.Body))
	now := s.Now().UTC()
	c := &change{
		key:   store.Key{Collection: RequestsCollection, ID: store.ID(s.Author(ctx).String(), key)},
		Print: hex.EncodeToString(sum[:]), BegunAt: now, Expires: now.Add(requestsKept),
	}
	_, err = s.Store.Commit(ctx, []store.Write{store.Create(c.key, store.Encode(c))})
	if !errors.Is(err, store.ErrExists) {
		return c, "", err
	}
	read := func(doc store.Document) (known change, err error) {
		err = store.Decode(doc.Fields, &known)
		return known, err
	}
	before, err := store.Read(ctx, s.Store, c.key, store.ErrNotFound, read)
	switch {
	case err != nil:
		return nil, "", err
	case before.Print != c.Print:
		return nil, "", errKeyReused
	case before.Done && before.Answer == "":
		return nil, "", errOnce
	case before.Done:
		return nil, before.Answer, nil
	case now.Sub(before.BegunAt) < requestsTake:
		return nil, "", errUnderWay
	default:
		return nil, "", errNoOutcome
	}
}

// end stores the answer of a change with a key. A refused change has done nothing, so its key is free again.
// One with an unknown outcome stays begun. After an error a change that has ended stays begun, too.
func (s *Server) end(
	ctx context.Context, o console.Operation, c *change, answer []byte, refused error,
) error {
	problem, known := errors.AsType[*serve.Problem](refused)
	if c == nil || (refused != nil && (!known || problem.Status >= http.StatusInternalServerError)) {
		return nil
	}
	if c.Done = true; !o.Once && len(answer) <= maxKept {
		c.Answer = string(answer)
	}
	ended := store.Set(c.key, store.Encode(c))
	if refused != nil {
		ended = store.Delete(c.key, 0)
	}
	_, err := s.Store.Commit(context.WithoutCancel(ctx), []store.Write{ended})
	return err
}
