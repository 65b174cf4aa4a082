package firestore

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"billhook/internal/platform/store"
)

var simpleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// path quotes a field name that is not a simple one.
func path(name string) string {
	if simpleName.MatchString(name) {
		return name
	}
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"
}

func toValue(value any) *firestorepb.Value {
	switch v := value.(type) {
	case string:
		return &firestorepb.Value{ValueType: &firestorepb.Value_StringValue{StringValue: v}}
	case int64:
		return &firestorepb.Value{ValueType: &firestorepb.Value_IntegerValue{IntegerValue: v}}
	case bool:
		return &firestorepb.Value{ValueType: &firestorepb.Value_BooleanValue{BooleanValue: v}}
	case time.Time:
		return &firestorepb.Value{ValueType: &firestorepb.Value_TimestampValue{
			TimestampValue: timestamppb.New(v.UTC().Truncate(time.Microsecond)),
		}}
	case map[string]any:
		fields := make(map[string]*firestorepb.Value, len(v))
		for name, inner := range v {
			fields[name] = toValue(inner)
		}
		return &firestorepb.Value{
			ValueType: &firestorepb.Value_MapValue{MapValue: &firestorepb.MapValue{Fields: fields}},
		}
	case []any:
		values := make([]*firestorepb.Value, len(v))
		for i, inner := range v {
			values[i] = toValue(inner)
		}
		return &firestorepb.Value{
			ValueType: &firestorepb.Value_ArrayValue{ArrayValue: &firestorepb.ArrayValue{Values: values}},
		}
	default: // nil; CheckWrites refuses everything else
		return &firestorepb.Value{ValueType: &firestorepb.Value_NullValue{}}
	}
}

func fromProto(key store.Key, doc *firestorepb.Document) (store.Document, error) {
	fields, err := fromFields(doc.Fields)
	if err != nil {
		return store.Document{}, fmt.Errorf("firestore: %s: %w", key, err)
	}
	return store.Document{Key: key, Fields: fields, Version: store.Version(doc.UpdateTime.AsTime().UnixNano())},
		nil
}

func fromFields(values map[string]*firestorepb.Value) (map[string]any, error) {
	fields := make(map[string]any, len(values))
	for name, value := range values {
		var err error
		if fields[name], err = fromValue(value); err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
	}
	return fields, nil
}

var errForeign = errors.New("a value of a type that is never written here")

func fromValue(value *firestorepb.Value) (any, error) {
	switch v := value.ValueType.(type) {
	case *firestorepb.Value_NullValue:
		return nil, nil
	case *firestorepb.Value_StringValue:
		return v.StringValue, nil
	case *firestorepb.Value_IntegerValue:
		return v.IntegerValue, nil
	case *firestorepb.Value_BooleanValue:
		return v.BooleanValue, nil
	case *firestorepb.Value_TimestampValue:
		return v.TimestampValue.AsTime().UTC(), nil
	case *firestorepb.Value_MapValue:
		return fromFields(v.MapValue.Fields)
	case *firestorepb.Value_ArrayValue:
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

func (s *Store) toProto(w store.Write) *firestorepb.Write {
	out := &firestorepb.Write{}
	at := func(v store.Version) *firestorepb.Precondition {
		return &firestorepb.Precondition{ConditionType: &firestorepb.Precondition_UpdateTime{
			UpdateTime: timestamppb.New(time.Unix(0, int64(v))),
		}}
	}
	if w.Op == store.OpDelete {
		out.Operation = &firestorepb.Write_Delete{Delete: s.name(w.Key)}
		if w.Version != 0 {
			out.CurrentDocument = at(w.Version)
		}
		return out
	}
	out.Operation = &firestorepb.Write_Update{
		Update: &firestorepb.Document{Name: s.name(w.Key), Fields: toValue(w.Fields).GetMapValue().GetFields()},
	}
	switch w.Op {
	case store.OpCreate:
		out.CurrentDocument = &firestorepb.Precondition{
			ConditionType: &firestorepb.Precondition_Exists{Exists: false},
		}
	case store.OpUpdate:
		out.CurrentDocument = at(w.Version)
	case store.OpIncrement:
		out.UpdateMask = &firestorepb.DocumentMask{}
		for name := range w.Fields {
			out.UpdateMask.FieldPaths = append(out.UpdateMask.FieldPaths, path(name))
		}
		for name, add := range w.Add {
			out.UpdateTransforms = append(out.UpdateTransforms, &firestorepb.DocumentTransform_FieldTransform{
				FieldPath:     path(name),
				TransformType: &firestorepb.DocumentTransform_FieldTransform_Increment{Increment: toValue(add)},
			})
		}
	case store.OpSet, store.OpDelete:
	}
	if w.Stamp != "" {
		out.UpdateTransforms = append(out.UpdateTransforms, &firestorepb.DocumentTransform_FieldTransform{
			FieldPath: path(w.Stamp),
			TransformType: &firestorepb.DocumentTransform_FieldTransform_SetToServerValue{
				SetToServerValue: firestorepb.DocumentTransform_FieldTransform_REQUEST_TIME,
			},
		})
	}
	return out
}
