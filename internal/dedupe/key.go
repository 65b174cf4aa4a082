package dedupe

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"

	"billhook/internal/store"
)

// Key is the record's key. The hash goes first: PayNow's ids rise, and documents
// of rising ids make one hot range.
func Key(queue, tenant, eventID string) store.Key {
	return key(queue, tenant, eventID)
}

// ConflictKey is the key under which a payload is remembered that came under an id
// already used with another payload.
func ConflictKey(queue, tenant, eventID, payloadHash string) store.Key {
	return key(queue, tenant, eventID, payloadHash)
}

// MessageKey is the key of a message that has no valid event id to go by. The hash
// of its data is part of it, since an emulator numbers its messages anew at every start.
func MessageKey(queue, messageID string, data []byte) store.Key {
	sum := sha256.Sum256(data)
	return key(queue, "", "message", messageID, hex.EncodeToString(sum[:8]))
}

func key(parts ...string) store.Key {
	const hashed = 4
	id := make([]byte, 2*hashed+1, 128) // the hash and a dash go first
	for i, part := range parts {
		if i > 0 {
			id = append(id, '~')
		}
		// PathEscape leaves the tilde, which separates the parts here.
		id = append(id, strings.ReplaceAll(url.PathEscape(part), "~", "%7E")...)
	}
	sum := sha256.Sum256(id[2*hashed+1:])
	hex.Encode(id, sum[:hashed])
	id[2*hashed] = '-'
	return store.Key{Collection: Collection, ID: string(id)}
}
