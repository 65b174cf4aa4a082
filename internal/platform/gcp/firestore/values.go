package firestore

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"billhook/internal/platform/store"
)

var simpleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// path quotes a field name unless it is simple.
func path(name string) string {
	if simpleName.MatchString(name) {
		return name
	}
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"
}

func toValue(value any) *pb.Value {
	switch v := value.(type) {
	case string:
		return &pb.Value{ValueType: &pb.Value_StringValue{StringValue: v}}
	case int64:
		return &pb.Value{ValueType: &pb.Value_IntegerValue{IntegerValue: v}}
	case bool:
		return &pb.Value{ValueType: &pb.Value_BooleanValue{BooleanValue: v}}
	case time.Time:
		return &pb.Value{ValueType: &pb.Value_TimestampValue{
			TimestampValue: timestamppb.New(v.UTC().Truncate(time.Microsecond)),
		}}
	case map[string]any:
		fields := make(map[string]*pb.Value, len(v))
		for name, inner := range v {
			fields[name] = toValue(inner)
		}
		return &pb.Value{ValueType: &pb.Value_MapValue{MapValue: &pb.MapValue{Fields: fields}}}
	case []any:
		values := make([]*pb.Value, len(v))
		for i, inner := range v {
			values[i] = toValue(inner)
		}
		return &pb.Value{ValueType: &pb.Value_ArrayValue{ArrayValue: &pb.ArrayValue{Values: values}}}
	default: // nil; CheckWrites refuses everything else
		return &pb.Value{ValueType: &pb.Value_NullValue{}}
	}
}

func fromProto(key store.Key, doc *pb.Document) (store.Document, error) {
	fields, err := fromFields(doc.Fields)
	if err != nil {
		return store.Document{}, fmt.Errorf("firestore: %s: %w", key, err)
	}
	version := store.Version(doc.UpdateTime.AsTime().UnixNano())
	return store.Document{Key: key, Fields: fields, Version: version}, nil
}

func fromFields(values map[string]*pb.Value) (map[string]any, error) {
	fields := make(map[string]any, len(values))
	for name, value := range values {
		var err error
		if fields[name], err = fromValue(value); err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
	}
	return fields, nil
}

var errForeign = errors.New("a value of an unknown type")

func fromValue(value *pb.Value) (any, error) {
	switch v := value.ValueType.(type) {
	case *pb.Value_NullValue:
		return nil, nil
	case *pb.Value_StringValue:
		return v.StringValue, nil
	case *pb.Value_IntegerValue:
		return v.IntegerValue, nil
	case *pb.Value_BooleanValue:
		return v.BooleanValue, nil
	case *pb.Value_TimestampValue:
		return v.TimestampValue.AsTime().UTC(), nil
	case *pb.Value_MapValue:
		return fromFields(v.MapValue.Fields)
	case *pb.Value_ArrayValue:
		values := make([]any, len(v.ArrayValue.Values))
		for i, inner := range v.ArrayValue.Values {
			var err error
			if values[i], err = fromValue(inner); err != nil {
				return nil, err
			}
		}
		return values, nil
	default:
		return nil, errForeign
	}
}

func (s *Store) toProto(w store.Write) *pb.Write {
	out := &pb.Write{}
	at := func(v store.Version) *pb.Precondition {
		return &pb.Precondition{ConditionType: &pb.Precondition_UpdateTime{
			UpdateTime: timestamppb.New(time.Unix(0, int64(v))),
		}}
	}
	if w.Op == store.OpDelete {
		out.Operation = &pb.Write_Delete{Delete: s.name(w.Key)}
		if w.Version != 0 {
			out.CurrentDocument = at(w.Version)
		}
		return out
	}
	out.Operation = &pb.Write_Update{
		Update: &pb.Document{Name: s.name(w.Key), Fields: toValue(w.Fields).GetMapValue().GetFields()},
	}
	switch w.Op {
	case store.OpCreate:
		out.CurrentDocument = &pb.Precondition{ConditionType: &pb.Precondition_Exists{Exists: false}}
	case store.OpUpdate:
		out.CurrentDocument = at(w.Version)
	case store.OpIncrement:
		out.UpdateMask = &pb.DocumentMask{}
		for name := range w.Fields {
			out.UpdateMask.FieldPaths = append(out.UpdateMask.FieldPaths, path(name))
		}
		for name, add := range w.Add {
			out.UpdateTransforms = append(out.UpdateTransforms, &pb.DocumentTransform_FieldTransform{
				FieldPath:     path(name),
				TransformType: &pb.DocumentTransform_FieldTransform_Increment{Increment: toValue(add)},
			})
		}
	case store.OpSet, store.OpDelete:
	}
	if w.Stamp != "" {
		out.UpdateTransforms = append(out.UpdateTransforms, &pb.DocumentTransform_FieldTransform{
			FieldPath: path(w.Stamp),
			TransformType: &pb.DocumentTransform_FieldTransform_SetToServerValue{
				SetToServerValue: pb.DocumentTransform_FieldTransform_REQUEST_TIME,
			},
		})
	}
	return out
}
