// Package firestore keeps documents in Google Cloud Firestore, behind the three operations of the store
// package. It calls the database's own API: one Commit is one RPC with its preconditions, without an
// interactive transaction. It owns the mapping of values, versions and errors. It refuses to repeat a value
// of a document in an error.
package firestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	firestore "cloud.google.com/go/firestore/apiv1"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"billhook/internal/platform/store"
)

// callTimeout is above Firestore's usual time and below any handler's deadline, so that an outage is answered
// in time.
const callTimeout = 8 * time.Second

// lag is far above callTimeout, after which the database drops what it has not committed, and below the
// minute between two runs of the sealer: what waits is seen in each.
const lag = 30 * time.Second

// Lag is how much older than now a commit's stamp is at most when the commit is seen. The emulator commits at
// once.
func (s *Store) Lag() time.Duration {
	if s.emulator {
		return 0
	}
	return lag
}

// Store keeps documents in one database. The version of a document is its update time in nanoseconds. A write
// that changes nothing leaves it as it was.
//
// A commit is repeated after contention, and after Unavailable or ResourceExhausted unless it could add
// twice: ErrExists and ErrStale may come from its own first try. The outcome of one that is not repeated is
// unknown.
type Store struct {
	client   *firestore.Client
	database string
	emulator bool
	moves    moves
}

// New connects to the project's database, (default) if databaseID is empty. It follows
// FIRESTORE_EMULATOR_HOST, as Google's clients do.
func New(ctx context.Context, projectID, databaseID string, options ...option.ClientOption) (*Store, error) {
	return connect(ctx, os.Getenv("FIRESTORE_EMULATOR_HOST"), projectID, databaseID, options)
}

// NewEmulated connects to an emulator at host:port.
func NewEmulated(
	ctx context.Context, addr, projectID, databaseID string, options ...option.ClientOption,
) (*Store, error) {
	return connect(ctx, addr, projectID, databaseID, options)
}

func connect(
	ctx context.Context, emulator, projectID, databaseID string, options []option.ClientOption,
) (*Store, error) {
	if emulator != "" {
		options = append([]option.ClientOption{
			option.WithEndpoint(emulator),
			option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		}, options...)
	}
	client, err := firestore.NewClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("firestore: client: %w", err)
	}
	database := "projects/" + projectID + "/databases/" + cmp.Or(databaseID, "(default)")
	return &Store{client: client, database: database, emulator: emulator != ""}, nil
}

// Close closes the connection.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("firestore: close: %w", err)
	}
	return nil
}

// Get returns the document, or an error wrapping store.ErrNotFound.
func (s *Store) Get(ctx context.Context, key store.Key) (store.Document, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Document{}, err
	}
	found, err := s.read(ctx, map[store.Key]bool{key: true})
	if doc, ok := found[key]; ok || err != nil {
		return doc, err
	}
	return store.Document{}, fmt.Errorf("firestore: get %s: %w", key, store.ErrNotFound)
}

// read returns those of the documents that there are.
func (s *Store) read(
	ctx context.Context, keys map[store.Key]bool,
) (found map[store.Key]store.Document, err error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	request, byName := &firestorepb.BatchGetDocumentsRequest{Database: s.database}, map[string]store.Key{}
	for key := range keys {
		request.Documents = append(request.Documents, s.name(key))
		byName[s.name(key)] = key
	}
	missing := 0
	// GetDocument answers NotFound for a missing database too, which must not look empty. A stream fails when it
	// is read, so the library's retries have to contain both calls.
	err = gax.Invoke(ctx, func(ctx context.Context, _ gax.CallSettings) error {
		found, missing = map[store.Key]store.Document{}, 0
		stream, err := s.client.BatchGetDocuments(ctx, request, once)
		for err == nil {
			var answer *firestorepb.BatchGetDocumentsResponse
			if answer, err = stream.Recv(); err != nil {
				break
			}
			if doc := answer.GetFound(); doc != nil {
				found[byName[doc.Name]], err = fromProto(byName[doc.Name], doc)
			} else if answer.GetMissing() != "" {
				missing++
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}, s.client.CallOptions.BatchGetDocuments...)
	switch {
	case errors.Is(err, errForeign):
		return nil, err
	case err != nil:
		return nil, s.failed(ctx, "get", err)
	case len(found)+missing != len(keys):
		return nil, errors.New("firestore: get: empty answer")
	}
	return found, nil
}

// Commit applies all writes or none, in one RPC; see the store package for the errors.
func (s *Store) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	if err := store.CheckWrites(writes); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(writes, func(w store.Write) bool { return w.Moves }) {
		return s.move(ctx, writes)
	}
	return s.commit(ctx, writes)
}

func (s *Store) commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	request := &firestorepb.CommitRequest{Database: s.database, Writes: make([]*firestorepb.Write, len(writes))}
	for i, w := range writes {
		request.Writes[i] = s.toProto(w)
	}
	repeat := refusedOrLost
	if addsTwice(writes) {
		repeat = refused
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	response, err := s.client.Commit(ctx, request, repeat)
	code := status.Code(err)
	switch {
	case err == nil:
	case code == codes.AlreadyExists:
		return nil, fmt.Errorf("firestore: commit: %w", store.ErrExists)
	// NotFound is also the answer of a missing database, to any commit.
	case code == codes.FailedPrecondition, code == codes.NotFound && slices.ContainsFunc(writes, versioned):
		return nil, fmt.Errorf("firestore: commit: %w", store.ErrStale)
	default:
		return nil, s.failed(ctx, "commit", err)
	}
	if len(response.WriteResults) != len(writes) {
		return nil, fmt.Errorf("firestore: commit: %d results of %d writes", len(response.WriteResults),
			len(writes))
	}
	versions := make([]store.Version, len(writes))
	for i, w := range writes {
		if w.Op != store.OpDelete {
			versions[i] = store.Version(response.WriteResults[i].UpdateTime.AsTime().UnixNano())
		}
	}
	return versions, nil
}

// Aborted means contention: nothing was written. As a nack it would slow down the whole subscription.
var (
	once    = gax.WithRetry(func() gax.Retryer { return nil })
	refused = gax.WithRetry(func() gax.Retryer {
		return gax.OnCodes([]codes.Code{codes.Aborted}, repeating)
	})
	refusedOrLost = gax.WithRetry(func() gax.Retryer {
		return gax.OnCodes([]codes.Code{codes.Aborted, codes.Unavailable, codes.ResourceExhausted}, repeating)
	})
	repeating = gax.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Multiplier: 2}
)

func versioned(w store.Write) bool { return w.Version != 0 }

// addsTwice reports whether a commit could add again, if it is repeated after a lost answer: one that
// increments, and of which no create and no versioned delete fails the second time.
func addsTwice(writes []store.Write) bool {
	adds := slices.ContainsFunc(writes, func(w store.Write) bool { return w.Op == store.OpIncrement })
	return adds && !slices.ContainsFunc(writes, func(w store.Write) bool {
		return w.Op == store.OpCreate || w.Op == store.OpDelete && versioned(w)
	})
}

// Query returns one page in the order of ids or of times.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := store.CheckQuery(q); err != nil {
		return store.Page{}, err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	if q.Count {
		return s.count(ctx, q)
	}
	stream, err := s.client.RunQuery(ctx, &firestorepb.RunQueryRequest{
		Parent:    s.database + "/documents",
		QueryType: &firestorepb.RunQueryRequest_StructuredQuery{StructuredQuery: s.structured(q)},
	})
	if err != nil {
		return store.Page{}, s.failed(ctx, "query", err)
	}
	var page store.Page
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return store.Page{}, s.failed(ctx, "query", err)
		}
		if response.Document == nil {
			continue
		}
		id := response.Document.Name[strings.LastIndexByte(response.Document.Name, '/')+1:]
		if !strings.HasPrefix(id, q.IDPrefix) {
			break
		}
		doc, err := fromProto(store.Key{Collection: q.Collection, ID: id}, response.Document)
		if err != nil {
			return store.Page{}, err
		}
		page.Documents = append(page.Documents, doc)
	}
	if len(page.Documents) > q.Limit {
		page.Documents = page.Documents[:q.Limit]
		page.Next.ID = page.Documents[q.Limit-1].Key.ID
	}
	return page, nil
}

const countAlias = "count"

// count counts in the database: one read for a thousand index entries, and no document.
func (s *Store) count(ctx context.Context, q store.Query) (store.Page, error) {
	query := s.structured(q)
	query.Limit = nil
	stream, err := s.client.RunAggregationQuery(ctx, &firestorepb.RunAggregationQueryRequest{
		Parent: s.database + "/documents",
		QueryType: &firestorepb.RunAggregationQueryRequest_StructuredAggregationQuery{
			StructuredAggregationQuery: &firestorepb.StructuredAggregationQuery{
				QueryType: &firestorepb.StructuredAggregationQuery_StructuredQuery{StructuredQuery: query},
				Aggregations: []*firestorepb.StructuredAggregationQuery_Aggregation{{
					Alias: countAlias,
					Operator: &firestorepb.StructuredAggregationQuery_Aggregation_Count_{
						Count: &firestorepb.StructuredAggregationQuery_Aggregation_Count{
							UpTo: wrapperspb.Int64(int64(q.Limit)),
						},
					},
				}},
			},
		},
	})
	if err != nil {
		return store.Page{}, s.failed(ctx, "count", err)
	}
	answer, err := stream.Recv()
	if err != nil {
		return store.Page{}, s.failed(ctx, "count", err)
	}
	return store.Page{Count: answer.GetResult().GetAggregateFields()[countAlias].GetIntegerValue()}, nil
}

// structured asks for one document more than a page by ids holds, which shows whether there is a next one.
func (s *Store) structured(q store.Query) *firestorepb.StructuredQuery {
	const name = "__name__"
	var filters []*firestorepb.StructuredQuery_Filter
	fieldAt := func(path string) *firestorepb.StructuredQuery_FieldReference {
		return &firestorepb.StructuredQuery_FieldReference{FieldPath: path}
	}
	where := func(path string, op firestorepb.StructuredQuery_FieldFilter_Operator, value *firestorepb.Value) {
		filters = append(filters,
			&firestorepb.StructuredQuery_Filter{FilterType: &firestorepb.StructuredQuery_Filter_FieldFilter{
				FieldFilter: &firestorepb.StructuredQuery_FieldFilter{Field: fieldAt(path), Op: op, Value: value},
			}})
	}
	reference := func(id string) *firestorepb.Value {
		return &firestorepb.Value{ValueType: &firestorepb.Value_ReferenceValue{
			ReferenceValue: s.name(store.Key{Collection: q.Collection, ID: id}),
		}}
	}
	for _, equal := range slices.Sorted(maps.Keys(q.Equal)) {
		where(path(equal), firestorepb.StructuredQuery_FieldFilter_EQUAL, toValue(q.Equal[equal]))
	}
	for list, text := range q.Contains { // one at most
		where(path(list), firestorepb.StructuredQuery_FieldFilter_ARRAY_CONTAINS, toValue(text))
	}
	if q.IDPrefix != "" {
		where(name, firestorepb.StructuredQuery_FieldFilter_GREATER_THAN_OR_EQUAL, reference(q.IDPrefix))
		// Where the bound would exceed the length of an id, the reader of the answer filters.
		if end := q.IDPrefix + string(utf8.MaxRune); len(end) <= store.MaxIDBytes {
			where(name, firestorepb.StructuredQuery_FieldFilter_LESS_THAN, reference(end))
		}
	}
	if !q.After.IsZero() && q.ByTime() == nil {
		where(name, firestorepb.StructuredQuery_FieldFilter_GREATER_THAN, reference(q.After.ID))
	}
	query := &firestorepb.StructuredQuery{
		From:  []*firestorepb.StructuredQuery_CollectionSelector{{CollectionId: q.Collection}},
		Limit: wrapperspb.Int32(int32(q.Limit)), //nolint:gosec // at most MaxPage
	}
	order := func(path string, direction firestorepb.StructuredQuery_Direction) {
		by := &firestorepb.StructuredQuery_Order{Field: fieldAt(path), Direction: direction}
		query.OrderBy = append(query.OrderBy, by)
	}
	if of := q.ByTime(); of != nil {
		// A comparison with a time matches times alone, so documents without the field are left out.
		field, direction := path(of.Field), firestorepb.StructuredQuery_DESCENDING
		where(field, firestorepb.StructuredQuery_FieldFilter_GREATER_THAN_OR_EQUAL, toValue(of.Since))
		switch {
		case q.Due != nil:
			direction = firestorepb.StructuredQuery_ASCENDING
			where(field, firestorepb.StructuredQuery_FieldFilter_LESS_THAN_OR_EQUAL, toValue(of.Until))
		case !of.Until.IsZero():
			where(field, firestorepb.StructuredQuery_FieldFilter_LESS_THAN, toValue(of.Until))
		}
		order(field, direction)
		order(name, direction)
		if !q.After.IsZero() {
			after := []*firestorepb.Value{toValue(q.After.At), reference(q.After.ID)}
			query.StartAt = &firestorepb.Cursor{Values: after}
		}
	} else {
		order(name, firestorepb.StructuredQuery_ASCENDING)
		query.Limit.Value++
	}
	if len(filters) > 0 {
		query.Where = &firestorepb.StructuredQuery_Filter{
			FilterType: &firestorepb.StructuredQuery_Filter_CompositeFilter{
				CompositeFilter: &firestorepb.StructuredQuery_CompositeFilter{
					Op: firestorepb.StructuredQuery_CompositeFilter_AND, Filters: filters,
				},
			},
		}
	}
	return query
}

func (s *Store) name(key store.Key) string {
	return s.database + "/documents/" + key.Collection + "/" + key.ID
}

func (s *Store) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = metadata.AppendToOutgoingContext(ctx, "google-cloud-resource-prefix", s.database)
	if s.emulator {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer owner")
	}
	return context.WithTimeout(ctx, callTimeout)
}

// failed has Firestore's code only: Firestore's text may repeat a document.
func (s *Store) failed(ctx context.Context, operation string, err error) error {
	code := status.Code(err)
	switch {
	case code == codes.InvalidArgument:
		return fmt.Errorf("firestore: %s: %w", operation, store.ErrInvalid)
	case ctx.Err() != nil:
		return fmt.Errorf("firestore: %s: %w", operation, ctx.Err())
	case code == codes.DeadlineExceeded:
		return fmt.Errorf("firestore: %s: %w", operation, context.DeadlineExceeded)
	default:
		return fmt.Errorf("firestore: %s: %s", operation, code)
	}
}
