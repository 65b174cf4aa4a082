// Package seal makes what the books contain provable. A seal names entries of one tenant, in order: by the
// root of a Merkle tree (RFC 6962) over their hashes, with what they add to each account, and with the hash
// of the seal before. An entry that is changed, removed, inserted or moved later no longer fits. Only kept
// seals prove anything: whoever can write to the whole store can seal everything again.
package seal

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/platform/store"
)

// The collections.
const (
	Seals = "seals"
	// Leaves holds the leaves of each seal, under the seal's id.
	Leaves = "sealLeaves"
	Heads  = "sealHeads"
)

const fieldTenant = "tenant"

// The errors.
var (
	// ErrBroken: a stored seal, head or list of leaves cannot be read. Trying again does not help.
	ErrBroken   = errors.New("seal: stored seal is not readable")
	ErrNoEntry  = console.Refuse(console.Absent, "entry_unknown", "The books have no entry of that id.")
	ErrUnsealed = console.Refuse(console.Conflict, "entry_unsealed",
		"The entry is not sealed yet, and nothing proves it before; the task seal-journal seals it, so ask again.")
	// ErrProof: the text proves nothing; the error says what is wrong with it.
	ErrProof = errors.New("seal: not a proof")
)

// Sum is what was debited and credited. In JSON both are texts, because a number is exact only up to 2^53.
type Sum struct {
	Debit  int64 `json:"debit,string" store:"debit,required"`
	Credit int64 `json:"credit,string" store:"credit,required"`
}

// Totals are the sums of each control account and currency.
type Totals map[string]map[string]Sum

// Through is the position of an entry, and covers all entries committed up to it.
type Through struct {
	At time.Time `json:"through,omitzero" store:"through,omitzero"`
	ID string    `json:"through_id,omitzero" store:"through_id,omitzero"`
}

func (t Through) cursor() store.Cursor { return store.Cursor(t) }

// before reports whether this position is before another.
func (t Through) before(at store.Cursor) bool { return t.cursor().Compare(at) < 0 }

// Seal is one seal of a tenant's chain.
type Seal struct {
	Tenant string `json:"tenant" store:"tenant,required"`
	// Number is its number in the tenant's chain: 1, 2, ...
	Number int64 `json:"number" store:"number,required" show:"Seal"`
	// Through is the position of its last entry. The seal has all of the tenant's entries up to there that no
	// earlier seal has.
	Through `store:",inline"`
	// Previous is the Hash of the seal before, in hex; 64 zeros in the first seal.
	Previous string `json:"previous" store:"previous,required"`
	// Root is the root of the Merkle tree over the leaf hashes of Count entries, in hex.
	Root     string    `json:"root" store:"root,required"`
	Count    int64     `json:"count" store:"count,required" show:"Entries"`
	SealedAt time.Time `json:"sealed_at" store:"sealed_at,required" show:"Sealed"`
	// Totals is what its entries add, by period.
	Totals map[string]Totals `json:"totals" store:"totals,required"`
	// Running is the sum of this seal and all earlier ones, for each period of Totals.
	Running map[string]Totals `json:"running" store:"running,required"`
	// Periods is the number of the last seal, up to this one, with entries of each period.
	Periods map[string]int64 `json:"periods" store:"periods,required"`
	// Hash is the SHA-256 of all the above as JSON (RFC 8785), in hex.
	Hash string `json:"hash,omitzero" store:"hash,required" show:"Hash"`
}

var firstPrevious = strings.Repeat("0", 2*sha256.Size)

// computed returns the hash of the seal's JSON without Hash, in the form of RFC 8785, so that anybody who
// keeps a seal can compute it.
func (s Seal) computed() (string, error) {
	s.Hash = ""
	s.SealedAt, s.At = s.SealedAt.UTC(), s.At.UTC()
	text, err := json.Marshal(s)
	if err == nil {
		err = (*jsontext.Value)(&text).Canonicalize()
	}
	if err != nil {
		return "", fmt.Errorf("%w: not JSON", ErrBroken)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// Check compares the seal's hash with its content. The error wraps ErrBroken.
func (s Seal) Check() error {
	hash, err := s.computed()
	if err == nil && hash != s.Hash {
		err = fmt.Errorf("%w: the hash is not that of its content", ErrBroken)
	}
	return err
}

// unread reports whether the seal could not be read and has only its number.
func (s Seal) unread() bool { return s.Hash == "" }

// decode reads a document that has exactly the fields of a T. The error wraps ErrBroken.
func decode[T any](doc store.Document) (one T, err error) {
	if err := store.Decode(doc.Fields, &one); err != nil || !reflect.DeepEqual(store.Encode(&one), doc.Fields) {
		return one, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return one, nil
}

// head is the document that names the newest seal of a tenant's chain.
type head struct {
	Tenant  string `store:"tenant,required"`
	Number  int64  `store:"number,required"`
	Through `store:",inline"`
	Hash    string           `store:"hash,required"`
	Periods map[string]int64 `store:"periods,required"`

	version store.Version
	sums    map[string]Totals // the running sums that are known already
}

func (s Seal) head() head {
	return head{
		Tenant: s.Tenant, Number: s.Number, Through: s.Through, Hash: s.Hash, Periods: s.Periods,
		sums: maps.Clone(s.Running),
	}
}

// running returns the sum of a period in all seals up to the head. The error wraps ErrBroken if the last seal
// of the period cannot be read, or contradicts the head.
func (h head) running(ctx context.Context, from store.Getter, period string) (Totals, error) {
	number, sealed := h.Periods[period]
	sum, known := h.sums[period]
	if !sealed || known {
		return sum, nil
	}
	s, err := readNumber(ctx, from, h.Tenant, number)
	if err != nil {
		return nil, err
	}
	for other, sum := range s.Running {
		if h.Periods[other] == number {
			h.sums[other] = sum
		}
	}
	if sum, known = h.sums[period]; !known || number == h.Number && s.Hash != h.Hash {
		return nil, fmt.Errorf("%w: the head contradicts seal %d", ErrBroken, number)
	}
	return sum, nil
}

// readHead returns the head of a tenant's chain; one without seals has Number 0.
func readHead(ctx context.Context, from store.Getter, tenant string) (head, error) {
	doc, err := store.Find(ctx, from, headKey(tenant))
	switch {
	case err != nil:
		return head{}, fmt.Errorf("seal: read head: %w", err)
	case doc.Version == 0:
		return head{Tenant: tenant, Hash: firstPrevious, Periods: map[string]int64{}, sums: map[string]Totals{}},
			nil
	}
	h, err := decode[head](doc)
	if err == nil && (h.Tenant != tenant || h.Number < 1) {
		err = fmt.Errorf("%w: %s has the fields of another", ErrBroken, doc.Key)
	}
	h.version, h.sums = doc.Version, map[string]Totals{}
	return h, err
}

type leaf struct {
	id   string
	hash []byte
}

// String returns the leaf as its document has it: the hash in hex, a space, and the id.
func (l leaf) String() string { return hex.EncodeToString(l.hash) + " " + l.id }

func leavesFields(tenant string, number int64, leaves []leaf) map[string]any {
	list := make([]any, len(leaves))
	for i, l := range leaves {
		list[i] = l.String()
	}
	return map[string]any{"tenant": tenant, "number": number, "leaves": list}
}

// errGone: a seal, or a list of leaves, does not exist, though another document refers to it.
var errGone = fmt.Errorf("%w: it does not exist", ErrBroken)

// readLeaves reads the leaves of a seal. The error may be ErrBroken.
func readLeaves(ctx context.Context, from store.Getter, tenant string, number int64) ([]leaf, error) {
	return store.Read(ctx, from, leavesKey(tenant, number), errGone, func(doc store.Document) ([]leaf, error) {
		list, _ := doc.Fields["leaves"].([]any)
		leaves := make([]leaf, len(list))
		for i, element := range list {
			text, _ := element.(string)
			hash, id, _ := strings.Cut(text, " ")
			leaves[i].id = id
			leaves[i].hash, _ = hex.DecodeString(hash) // an invalid hash makes the comparison fail
		}
		if !reflect.DeepEqual(leavesFields(tenant, number, leaves), doc.Fields) {
			return nil, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
		}
		return leaves, nil
	})
}

// readNumber reads one seal and checks its hash. The error may be ErrBroken.
func readNumber(ctx context.Context, from store.Getter, tenant string, number int64) (Seal, error) {
	return store.Read(ctx, from, sealKey(tenant, number), errGone, func(doc store.Document) (Seal, error) {
		s, err := decode[Seal](doc)
		if err == nil && doc.Key != sealKey(s.Tenant, s.Number) {
			err = fmt.Errorf("%w: %s has the fields of another", ErrBroken, doc.Key)
		}
		return s, cmp.Or(err, s.Check())
	})
}

func sealKey(tenant string, number int64) store.Key {
	return store.Key{Collection: Seals, ID: ID(tenant, number)}
}

func leavesKey(tenant string, number int64) store.Key {
	return store.Key{Collection: Leaves, ID: ID(tenant, number)}
}

func headKey(tenant string) store.Key { return store.Key{Collection: Heads, ID: HeadID(tenant)} }

// HeadID is the id of the head of a tenant's chain.
func HeadID(tenant string) string { return store.ID(tenant) }

// ID is the id of a tenant's seal, and of its leaves.
func ID(tenant string, number int64) string {
	return fmt.Sprintf("%s~%010d", HeadID(tenant), number)
}

// Origins finds what made the entries of the books. It reads past every cache.
type Origins interface {
	// Vouched reports whether the record of the entry's event names the entry, or the audit names the entry's
	// author: both are written in the entry's own commit. The error is a read error.
	Vouched(ctx context.Context, entry ledger.Entry) (bool, error)
	// Made returns how many entries the records of a tenant name that were committed from one time to another,
	// both included. If it equals the number of entries, each of them is vouched for.
	Made(ctx context.Context, tenant string, from, to time.Time) (int64, error)
	// Closings returns the moment from which each closed month of a tenant takes no entries.
	Closings(ctx context.Context, tenant string) (map[string]time.Time, error)
}

// checkAll returns the answer of check for each of all, in parallel.
func checkAll[T any](
	ctx context.Context, all []T, check func(context.Context, T) (bool, error),
) ([]bool, error) {
	answers := make([]bool, len(all))
	return answers, store.AtOnce(ctx, len(all), func(ctx context.Context, i int) (err error) {
		answers[i], err = check(ctx, all[i])
		return err
	})
}
