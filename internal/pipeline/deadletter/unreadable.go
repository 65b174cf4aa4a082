package deadletter

import (
	"cmp"
	"maps"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// EntryUnreadable is the reason of what waited in a lane under a document that cannot be read.
const EntryUnreadable = "entry_unreadable"

// Unreadable returns the writes that keep what waited in a lane under a document that cannot be read: its
// message, or else the whole document as JSON. The caller deletes the document.
func Unreadable(queue catalog.Queue, doc store.Document, now time.Time) []store.Write {
	var waited struct {
		Message contract.Message `store:"message,required"`
		EventID string           `store:"event_id"`
		Tenant  string           `store:"tenant"`
	}
	err := store.Decode(doc.Fields, &waited)
	m := waited.Message
	if err != nil && len(m.Data) == 0 {
		m.Data, _ = json.Marshal(doc.Fields, json.Deterministic(true)) // a document has nothing that JSON has not
	}
	m.Attributes = maps.Clone(m.Attributes)
	if m.Attributes == nil {
		m.Attributes = map[string]string{}
	}
	if m.Attributes[contract.AttrFirstMessageID] == "" { // by which its replay is known
		m.Attributes[contract.AttrFirstMessageID] = doc.Key.ID
	}
	source := m.Attributes[contract.AttrFirstMessageID]
	item := itemFor(queue, m, source, EntryUnreadable, int64(retry.Malformed), now)
	item.Detail, item.DeadLettered, item.Tenant = doc.Key.ID, now, waited.Tenant
	item.EventID = cmp.Or(m.Attributes[contract.AttrEventID], waited.EventID)
	return []store.Write{store.Set(store.Key{Collection: Collection, ID: ItemID(queue, source, m)}, item.fields())}
}
