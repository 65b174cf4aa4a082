package standin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/store"
)

// Database is Firestore in this process: the calls that Billhook makes of its gRPC API, on
// loopback, in front of a store. Several processes can share a store through it. It knows one
// project and no other call.
type Database struct {
	firestorepb.UnimplementedFirestoreServer

	store  store.Store
	server *grpc.Server
	addr   string
}

// NewDatabase starts a database in front of a store.
func NewDatabase(ctx context.Context, from store.Store, options ...grpc.ServerOption) (*Database, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("standin: database: %w", err)
	}
	d := &Database{store: from, server: grpc.NewServer(options...), addr: listener.Addr().String()}
	firestorepb.RegisterFirestoreServer(d.server, d)
	go func() { _ = d.server.Serve(listener) }() // ends with Close
	return d, nil
}

// Addr is the address of the gRPC server, as FIRESTORE_EMULATOR_HOST takes it.
func (d *Database) Addr() string { return d.addr }

// Close cuts all calls. The store stays open.
func (d *Database) Close() { d.server.Stop() }

// BatchGetDocuments implements firestorepb.FirestoreServer.
func (d *Database) BatchGetDocuments(request *firestorepb.BatchGetDocumentsRequest, to firestorepb.Firestore_BatchGetDocumentsServer) error {
	for _, name := range request.GetDocuments() {
		answer := &firestorepb.BatchGetDocumentsResponse{Result: &firestorepb.BatchGetDocumentsResponse_Missing{Missing: name}}
		doc, err := d.store.Get(to.Context(), keyOf(name))
		switch {
		case err == nil:
			answer.Result = &firestorepb.BatchGetDocumentsResponse_Found{Found: toProto(name, doc)}
		case !errors.Is(err, store.ErrNotFound):
			return answered(err)
		}
		if err := to.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements firestorepb.FirestoreServer.
func (d *Database) Commit(ctx context.Context, request *firestorepb.CommitRequest) (*firestorepb.CommitResponse, error) {
	writes := make([]store.Write, len(request.GetWrites()))
	for i, w := range request.GetWrites() {
		var err error
		if writes[i], err = writeOf(w); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	versions, err := d.store.Commit(ctx, writes)
	if err != nil {
		return nil, answered(err)
	}
	response := &firestorepb.CommitResponse{CommitTime: timestamppb.Now()}
	for _, version := range versions {
		response.WriteResults = append(response.WriteResults, &firestorepb.WriteResult{UpdateTime: timeOf(version)})
	}
	return response, nil
}

func writeOf(w *firestorepb.Write) (store.Write, error) {
	var version store.Version
	if at := w.GetCurrentDocument().GetUpdateTime(); at != nil {
		version = store.Version(at.AsTime().UnixNano())
	}
	if name := w.GetDelete(); name != "" {
		return store.Delete(keyOf(name), version), nil
	}
	key := keyOf(w.GetUpdate().GetName())
	fields, err := firestore.FromFields(w.GetUpdate().GetFields())
	switch {
	case err != nil:
		return store.Write{}, err
	case len(w.GetUpdateTransforms()) > 0:
		add := map[string]int64{}
		for _, transform := range w.GetUpdateTransforms() {
			add[unquoted(transform.GetFieldPath())] = transform.GetIncrement().GetIntegerValue()
		}
		return store.Increment(key, add, fields), nil
	case version != 0:
		return store.Replace(key, version, fields), nil
	case w.GetCurrentDocument() != nil:
		return store.Create(key, fields), nil
	default:
		return store.Set(key, fields), nil
	}
}

// RunQuery implements firestorepb.FirestoreServer.
func (d *Database) RunQuery(request *firestorepb.RunQueryRequest, to firestorepb.Firestore_RunQueryServer) error {
	query, err := queryOf(request.GetStructuredQuery())
	if err != nil {
		return err
	}
	for left := int(request.GetStructuredQuery().GetLimit().GetValue()); ; {
		query.Limit = min(left, store.MaxPage)
		page, err := d.store.Query(to.Context(), query)
		if err != nil {
			return answered(err)
		}
		for _, doc := range page.Documents {
			name := request.GetParent() + "/" + doc.Key.String()
			if err := to.Send(&firestorepb.RunQueryResponse{Document: toProto(name, doc), ReadTime: timestamppb.Now()}); err != nil {
				return err
			}
		}
		query.After = page.Next
		if left -= len(page.Documents); left == 0 || page.Next.IsZero() {
			return nil
		}
	}
}

// RunAggregationQuery implements firestorepb.FirestoreServer: it counts.
func (d *Database) RunAggregationQuery(request *firestorepb.RunAggregationQueryRequest, to firestorepb.Firestore_RunAggregationQueryServer) error {
	counting := request.GetStructuredAggregationQuery()
	query, err := queryOf(counting.GetStructuredQuery())
	if err != nil {
		return err
	}
	result := map[string]*firestorepb.Value{}
	for _, aggregation := range counting.GetAggregations() {
		query.Count, query.Limit = true, int(aggregation.GetCount().GetUpTo().GetValue())
		page, err := d.store.Query(to.Context(), query)
		if err != nil {
			return answered(err)
		}
		result[aggregation.GetAlias()] = &firestorepb.Value{ValueType: &firestorepb.Value_IntegerValue{IntegerValue: page.Count}}
	}
	return to.Send(&firestorepb.RunAggregationQueryResponse{Result: &firestorepb.AggregationResult{AggregateFields: result}})
}

// queryOf reads a query without its limit.
func queryOf(from *firestorepb.StructuredQuery) (store.Query, error) {
	query := store.Query{Collection: from.GetFrom()[0].GetCollectionId(), Equal: map[string]any{}, Contains: map[string]string{}}
	for _, filter := range from.GetWhere().GetCompositeFilter().GetFilters() {
		compared := filter.GetFieldFilter()
		name, value := unquoted(compared.GetField().GetFieldPath()), compared.GetValue()
		id := idOf(value)
		switch op := compared.GetOp(); {
		case name == "__name__" && op == firestorepb.StructuredQuery_FieldFilter_GREATER_THAN:
			query.After.ID = id
		case name == "__name__" && op == firestorepb.StructuredQuery_FieldFilter_GREATER_THAN_OR_EQUAL:
			query.IDPrefix = id
		case name == "__name__" && op == firestorepb.StructuredQuery_FieldFilter_LESS_THAN: // the end of the prefix
		case op == firestorepb.StructuredQuery_FieldFilter_LESS_THAN_OR_EQUAL:
			query.Due = &store.Due{Field: name, Until: value.GetTimestampValue().AsTime()}
		case op == firestorepb.StructuredQuery_FieldFilter_GREATER_THAN_OR_EQUAL:
			query.Newest = &store.Newest{Field: name, Since: value.GetTimestampValue().AsTime()}
		case op == firestorepb.StructuredQuery_FieldFilter_LESS_THAN && query.Newest != nil:
			query.Newest.Until = value.GetTimestampValue().AsTime()
		case op == firestorepb.StructuredQuery_FieldFilter_EQUAL:
			equal, err := firestore.FromValue(value)
			if err != nil {
				return query, status.Error(codes.InvalidArgument, err.Error())
			}
			query.Equal[name] = equal
		case op == firestorepb.StructuredQuery_FieldFilter_ARRAY_CONTAINS:
			query.Contains[name] = value.GetStringValue()
		default:
			return query, status.Errorf(codes.Unimplemented, "a filter with %s", op)
		}
	}
	if after := from.GetStartAt().GetValues(); len(after) == 2 && query.Newest != nil {
		query.After = store.Cursor{At: after[0].GetTimestampValue().AsTime(), ID: idOf(after[1])}
	}
	return query, nil
}

// idOf is the id of a document that a value refers to.
func idOf(value *firestorepb.Value) string {
	return value.GetReferenceValue()[strings.LastIndexByte(value.GetReferenceValue(), '/')+1:]
}

// answered is a store's error as Firestore says it.
func answered(err error) error {
	for code, named := range map[codes.Code]error{
		codes.AlreadyExists: store.ErrExists, codes.FailedPrecondition: store.ErrStale, codes.InvalidArgument: store.ErrInvalid,
		codes.Canceled: context.Canceled, codes.DeadlineExceeded: context.DeadlineExceeded,
	} {
		if errors.Is(err, named) {
			return status.Error(code, named.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// keyOf reads the name of a document: projects/P/databases/D/documents/collection/id.
func keyOf(name string) store.Key {
	parts := strings.SplitN(name, "/", 7)
	if len(parts) < 7 {
		return store.Key{} // which every store refuses
	}
	return store.Key{Collection: parts[5], ID: parts[6]}
}

// unquoted reads the path of one field.
func unquoted(path string) string {
	quoted, ok := strings.CutPrefix(path, "`")
	if !ok {
		return path
	}
	return strings.NewReplacer("\\\\", "\\", "\\`", "`").Replace(strings.TrimSuffix(quoted, "`"))
}

// timeOf is a version as the time of an update; nil for a document that is gone.
func timeOf(version store.Version) *timestamppb.Timestamp {
	if version == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, int64(version)))
}

func toProto(name string, doc store.Document) *firestorepb.Document {
	return &firestorepb.Document{Name: name, Fields: firestore.ToValue(doc.Fields).GetMapValue().GetFields(), CreateTime: timeOf(doc.Version), UpdateTime: timeOf(doc.Version)}
}
