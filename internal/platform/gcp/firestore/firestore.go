// Package firestore implements the three operations of package store on Google Cloud Firestore. It calls the
// database's own API: one Commit is one RPC with its preconditions, without a transaction. It owns the
// mapping of values, versions and errors. No error repeats a value of a document.
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
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
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

const (
	callTimeout = 8 * time.Second  // below any handler's deadline, so that the handler sees an outage
	lag         = 30 * time.Second // far above callTimeout, and below the minute between two runs of the sealer
)

// Lag returns how old a commit's time may be when the commit becomes visible. The emulator has no lag.
func (s *Store) Lag() time.Duration {
	if s.emulator {
		return 0
	}
	return lag
}

// Store keeps documents in one database. The version of a document is its update time in nanoseconds.
//
// A commit is repeated after contention, and after Unavailable or ResourceExhausted unless it could add
// twice. So its own first try may cause ErrExists and ErrStale, and a failed commit may have succeeded.
type Store struct {
	client   *firestore.Client
	database string
	emulator bool
	moves    moves
}

// New connects to the project's database, (default) if databaseID is empty, or to FIRESTORE_EMULATOR_HOST.
func New(ctx context.Context, projectID, databaseID string, options ...option.ClientOption) (*Store, error) {
	return NewEmulated(ctx, os.Getenv("FIRESTORE_EMULATOR_HOST"), projectID, databaseID, options...)
}

// NewEmulated connects to an emulator at host:port, or to Firestore itself if addr is empty.
func NewEmulated(
	ctx context.Context, addr, projectID, databaseID string, options ...option.ClientOption,
) (*Store, error) {
	if addr != "" {
		options = append([]option.ClientOption{
			option.WithEndpoint(addr),
			option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		}, options...)
	}
	// Nothing collects the library's traces and its metrics of each request.
	options = append([]option.ClientOption{option.WithTelemetryDisabled()}, options...)
	client, err := firestore.NewClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("firestore: client: %w", err)
	}
	database := "projects/" + projectID + "/databases/" + cmp.Or(databaseID, "(default)")
	return &Store{client: client, database: database, emulator: addr != ""}, nil
}

// Close closes the connection.
func (s *Store) Close() error { return s.client.Close() }

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

type documents map[store.Key]store.Document

// read returns the documents that exist.
func (s *Store) read(ctx context.Context, keys map[store.Key]bool) (found documents, err error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	request, byName := &pb.BatchGetDocumentsRequest{Database: s.database}, map[string]store.Key{}
	for key := range keys {
		request.Documents = append(request.Documents, s.name(key))
		byName[s.name(key)] = key
	}
	missing := 0
	// GetDocument also answers NotFound for a missing database, which must not look empty. A stream fails only
	// when it is read, so the library's retries have to contain both calls.
	err = gax.Invoke(ctx, func(ctx context.Context, _ gax.CallSettings) error {
		found, missing = documents{}, 0
		stream, err := s.client.BatchGetDocuments(ctx, request, once)
		for err == nil {
			var answer *pb.BatchGetDocumentsResponse
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
	request := &pb.CommitRequest{Database: s.database, Writes: make([]*pb.Write, len(writes))}
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
	// A missing database, too, answers NotFound to any commit.
	case code == codes.FailedPrecondition, code == codes.NotFound && slices.ContainsFunc(writes, versioned):
		return nil, fmt.Errorf("firestore: commit: %w", store.ErrStale)
	default:
		return nil, s.failed(ctx, "commit", err)
	}
	if len(response.WriteResults) != len(writes) {
		return nil, errors.New("firestore: commit: another number of results than of writes")
	}
	versions := make([]store.Version, len(writes))
	for i, w := range writes {
		if w.Op != store.OpDelete {
			versions[i] = store.Version(response.WriteResults[i].UpdateTime.AsTime().UnixNano())
		}
	}
	return versions, nil
}

// Aborted means contention, without a write. It is retried, since a nack would slow down the subscription.
var (
	once          = gax.WithRetry(func() gax.Retryer { return nil })
	refused       = repeatedOn(codes.Aborted)
	refusedOrLost = repeatedOn(codes.Aborted, codes.Unavailable, codes.ResourceExhausted)
)

func repeatedOn(failures ...codes.Code) gax.CallOption {
	backoff := gax.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Multiplier: 2}
	return gax.WithRetry(func() gax.Retryer { return gax.OnCodes(failures, backoff) })
}

func versioned(w store.Write) bool { return w.Version != 0 }

// addsTwice reports whether a repeated commit could add twice after a lost answer: it has an increment, but
// no create and no versioned delete, which would fail the second time.
func addsTwice(writes []store.Write) bool {
	adds := slices.ContainsFunc(writes, func(w store.Write) bool { return w.Op == store.OpIncrement })
	return adds && !slices.ContainsFunc(writes, func(w store.Write) bool {
		return w.Op == store.OpCreate || w.Op == store.OpDelete && versioned(w)
	})
}

// Query returns one page, ordered by id or by time.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := store.CheckQuery(q); err != nil {
		return store.Page{}, err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	if q.Count {
		return s.count(ctx, q)
	}
	stream, err := s.client.RunQuery(ctx, &pb.RunQueryRequest{
		Parent:    s.database + "/documents",
		QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: s.structured(q)},
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

// count counts in the database, which charges one read per thousand index entries and returns no documents.
func (s *Store) count(ctx context.Context, q store.Query) (store.Page, error) {
	query := s.structured(q)
	query.Limit = nil
	stream, err := s.client.RunAggregationQuery(ctx, &pb.RunAggregationQueryRequest{
		Parent: s.database + "/documents",
		QueryType: &pb.RunAggregationQueryRequest_StructuredAggregationQuery{
			StructuredAggregationQuery: &pb.StructuredAggregationQuery{
				QueryType: &pb.StructuredAggregationQuery_StructuredQuery{StructuredQuery: query},
				Aggregations: []*pb.StructuredAggregationQuery_Aggregation{{
					Alias: countAlias,
					Operator: &pb.StructuredAggregationQuery_Aggregation_Count_{
						Count: &pb.StructuredAggregationQuery_Aggregation_Count{UpTo: wrapperspb.Int64(int64(q.Limit))},
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

// structured requests one document more than a page by id has, to see whether there is a next page.
func (s *Store) structured(q store.Query) *pb.StructuredQuery {
	const name = "__name__"
	var filters []*pb.StructuredQuery_Filter
	fieldAt := func(path string) *pb.StructuredQuery_FieldReference {
		return &pb.StructuredQuery_FieldReference{FieldPath: path}
	}
	where := func(path string, op pb.StructuredQuery_FieldFilter_Operator, value *pb.Value) {
		filters = append(filters,
			&pb.StructuredQuery_Filter{FilterType: &pb.StructuredQuery_Filter_FieldFilter{
				FieldFilter: &pb.StructuredQuery_FieldFilter{Field: fieldAt(path), Op: op, Value: value},
			}})
	}
	reference := func(id string) *pb.Value {
		return &pb.Value{ValueType: &pb.Value_ReferenceValue{
			ReferenceValue: s.name(store.Key{Collection: q.Collection, ID: id}),
		}}
	}
	for _, equal := range slices.Sorted(maps.Keys(q.Equal)) {
		where(path(equal), pb.StructuredQuery_FieldFilter_EQUAL, toValue(q.Equal[equal]))
	}
	for list, text := range q.Contains { // one at most
		where(path(list), pb.StructuredQuery_FieldFilter_ARRAY_CONTAINS, toValue(text))
	}
	if q.IDPrefix != "" {
		where(name, pb.StructuredQuery_FieldFilter_GREATER_THAN_OR_EQUAL, reference(q.IDPrefix))
		// If the bound is too long for an id, Query filters the answer.
		if end := q.IDPrefix + string(utf8.MaxRune); len(end) <= store.MaxIDBytes {
			where(name, pb.StructuredQuery_FieldFilter_LESS_THAN, reference(end))
		}
	}
	if !q.After.IsZero() && q.ByTime() == nil {
		where(name, pb.StructuredQuery_FieldFilter_GREATER_THAN, reference(q.After.ID))
	}
	query := &pb.StructuredQuery{
		From:  []*pb.StructuredQuery_CollectionSelector{{CollectionId: q.Collection}},
		Limit: wrapperspb.Int32(int32(q.Limit)), //nolint:gosec // at most MaxPage
	}
	order := func(path string, direction pb.StructuredQuery_Direction) {
		by := &pb.StructuredQuery_Order{Field: fieldAt(path), Direction: direction}
		query.OrderBy = append(query.OrderBy, by)
	}
	if of := q.ByTime(); of != nil {
		// A comparison with a time matches only times, so it leaves out documents without the field.
		field, direction := path(of.Field), pb.StructuredQuery_DESCENDING
		where(field, pb.StructuredQuery_FieldFilter_GREATER_THAN_OR_EQUAL, toValue(of.Since))
		switch {
		case q.Due != nil:
			direction = pb.StructuredQuery_ASCENDING
			where(field, pb.StructuredQuery_FieldFilter_LESS_THAN_OR_EQUAL, toValue(of.Until))
		case !of.Until.IsZero():
			where(field, pb.StructuredQuery_FieldFilter_LESS_THAN, toValue(of.Until))
		}
		order(field, direction)
		order(name, direction)
		if !q.After.IsZero() {
			after := []*pb.Value{toValue(q.After.At), reference(q.After.ID)}
			query.StartAt = &pb.Cursor{Values: after}
		}
	} else {
		order(name, pb.StructuredQuery_ASCENDING)
		query.Limit.Value++
	}
	if len(filters) > 0 {
		all := &pb.StructuredQuery_CompositeFilter{Op: pb.StructuredQuery_CompositeFilter_AND, Filters: filters}
		composite := &pb.StructuredQuery_Filter_CompositeFilter{CompositeFilter: all}
		query.Where = &pb.StructuredQuery_Filter{FilterType: composite}
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

// failed returns an error with only Firestore's code, because Firestore's text may repeat a document.
func (s *Store) failed(ctx context.Context, operation string, err error) error {
	code, cause := status.Code(err), ctx.Err()
	switch {
	case code == codes.InvalidArgument:
		cause = store.ErrInvalid
	case cause == nil && code == codes.DeadlineExceeded:
		cause = context.DeadlineExceeded
	case cause == nil:
		cause = errors.New(code.String())
	}
	return fmt.Errorf("firestore: %s: %w", operation, cause)
}
