package dedupe

import (
	"context"
	"maps"

	"billhook/internal/store"
)

// Adopt gives the records of the release before this their part of the time index, by which the job
// log finds them: a page of at most limit, 1 to store.MaxWrites, behind the record after, as
// store.Adopt does. It changes nothing else that is read.
func Adopt(ctx context.Context, s store.Store, after string, limit int) (store.Adopted, error) {
	return store.Adopt(ctx, s, Collection, after, limit, func(doc store.Document) (map[string]any, error) {
		record, err := FromDocument(doc)
		if err != nil || doc.Fields[fieldShard] != nil {
			return nil, err
		}
		fields := maps.Clone(doc.Fields)
		fields[fieldShard] = Shard(record.Queue, record.Tenant, record.EventID)
		delete(fields, "hour") // by which that release found it
		return fields, nil
	})
}
