// Package seal makes what the books hold provable. A seal names a number of entries of one tenant,
// in order: by the root of a Merkle tree (RFC 6962) over their hashes, with what they add to each
// account, and with the hash of the seal before. So an entry that is changed, taken out, put in or
// moved later no longer fits, and a proof of one entry is a few hashes long.
//
// Sealing costs the posting path nothing: an entry is written with a mark, and a task takes the
// mark away. One commit makes a seal whole: the seal, the list of its leaves, the head of the
// tenant's chain at its version, and each sealed entry at its version. Whoever ends in between, or
// comes second, has written nothing.
//
// A balance is what the last seal of a period has summed up, and what is not sealed yet.
//
// The package refuses to prove what nobody kept: someone who can write to the whole store can seal
// everything again. Who has kept an older seal finds that.
package seal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"billhook/internal/store"
)

// The collections.
const (
	// Seals holds the seals, each with its totals.
	Seals = "seals"
	// Leaves holds the leaves of each seal, under the seal's id.
	Leaves = "sealLeaves"
	// Heads holds the head of each tenant's chain.
	Heads = "sealHeads"
)

// The errors.
var (
	// ErrBroken: a stored seal, head or list of leaves cannot be read. Trying again does not help.
	ErrBroken = errors.New("seal: stored seal is not readable")
	// ErrNoEntry: there is no entry of that id.
	ErrNoEntry = errors.New("seal: no such entry")
	// ErrUnsealed: the entry is not sealed yet.
	ErrUnsealed = errors.New("seal: the entry is not sealed yet")
	// ErrProof: the text proves nothing; the error says what is wrong with it.
	ErrProof = errors.New("seal: not a proof")
	// ErrKey: a signing or a verifying key cannot be read.
	ErrKey = errors.New("seal: not a note key")
)

// Reader is what reading seals and balances needs.
type Reader interface {
	store.Getter
	store.Querier
}

// Sum is what was debited and credited, in minor units.
type Sum struct {
	Debit  int64 `json:"debit"`
	Credit int64 `json:"credit"`
}

// Totals are the sums of each control account and currency.
type Totals map[string]map[string]Sum

// Seal is one seal of a tenant's chain.
type Seal struct {
	Tenant string `json:"tenant"`
	// Number is its place in the tenant's chain: 1, 2, ...
	Number int64 `json:"number"`
	// Previous is the Hash of the seal before, in hex; of the first, 64 zeros.
	Previous string `json:"previous"`
	// Root is the root of the Merkle tree over the leaf hashes of Count entries, in hex.
	Root     string    `json:"root"`
	Count    int64     `json:"count"`
	SealedAt time.Time `json:"sealed_at"`
	// Totals is what its entries add, by period.
	Totals map[string]Totals `json:"totals"`
	// Running is all that was sealed so far in each period of Totals.
	Running map[string]Totals `json:"running"`
	// Periods is the number of the last seal, up to this one, with entries of each period.
	Periods map[string]int64 `json:"periods"`
	// Hash is the SHA-256 of all the above as JSON (RFC 8785), in hex.
	Hash string `json:"hash"`
}

// firstPrevious is the Previous of a tenant's first seal.
var firstPrevious = strings.Repeat("0", 2*sha256.Size)

// HeadID is the id of the head of a tenant's chain.
func HeadID(tenant string) string {
	sum := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(sum[:4]) + "-" + escape(tenant)
}

// ID is the id of a tenant's seal, and of its leaves.
func ID(tenant string, number int64) string {
	return fmt.Sprintf("%s~%010d", HeadID(tenant), number)
}

// escape makes any text part of a document id; different texts stay different.
func escape(s string) string {
	return strings.ReplaceAll(url.PathEscape(s), "~", "%7E")
}
