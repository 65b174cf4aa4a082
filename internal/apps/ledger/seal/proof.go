package seal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	merkle "github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// inclusion proves that an entry is in a seal, to anybody who has kept the seal.
type inclusion struct {
	Tenant string `json:"tenant"`
	Seal   int64  `json:"seal"`
	// Index is the position of the entry's leaf in the seal, from 0.
	Index int64 `json:"index"`
	// Path has the hashes that lead from the entry to the root: RFC 6962's inclusion proof.
	Path  [][]byte       `json:"path"`
	Entry jsontext.Value `json:"entry"`
}

// text returns the only valid form of the proof.
func (p inclusion) text() ([]byte, error) {
	text, err := json.Marshal(p)
	return append(text, '\n'), err
}

// Proven is what a proof proves.
type Proven struct {
	Tenant   string `json:"tenant"`
	Seal     int64  `json:"seal"`
	SealHash string `json:"seal_hash" show:"Seal"`
	Root     string `json:"root" show:"Root"`
	Count    int64  `json:"count"`
	Index    int64  `json:"index"`
	// Entry is the entry's canonical JSON, which the proof carries.
	Entry jsontext.Value `json:"entry" show:"Entry"`
}

// Notes says which entry of which seal was proven.
func (p Proven) Notes() []string {
	const is = "The entry is number %d of %d in seal %d of tenant %s, which is the one that was kept."
	return []string{fmt.Sprintf(is, p.Index+1, p.Count, p.Seal, p.Tenant)}
}

// Prove returns the proof that an entry is in its seal. The error may be ErrNoEntry, ErrUnsealed or
// ErrBroken.
func Prove(ctx context.Context, from ledger.Reader, entryID string) ([]byte, error) {
	entry, err := store.Read(ctx, from, ledger.Key(entryID), ErrNoEntry, ledger.Read)
	if errors.Is(err, ledger.ErrBroken) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if err != nil {
		return nil, err
	}
	s, leaves, place, err := locate(ctx, from, entry)
	switch {
	case err != nil:
		return nil, err
	case place < 0:
		return nil, ErrUnsealed
	}
	made := inclusion{Tenant: entry.Tenant, Seal: s.Number, Index: int64(place), Path: pathOf(leaves, place)}
	var text []byte
	if made.Entry, err = entry.Canonical(); err == nil {
		text, err = made.text()
	}
	if err == nil { // the check fails if the books were changed
		_, err = CheckProof(text, []Seal{s})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return text, nil
}

// locate returns the first seal that passes an entry's position, its leaves, and the index of the entry's
// leaf. place is below 0 if no seal passes it yet, or if none of the leaves is the entry's. The error may be
// ErrBroken.
func locate(
	ctx context.Context, from ledger.Reader, e ledger.Entry,
) (s Seal, leaves []leaf, place int, err error) {
	position := ledger.Position(e.Document)
	query := store.Query{
		Collection: Seals, Equal: map[string]any{"tenant": e.Tenant}, Limit: 2,
		Due:   &store.Due{Field: "through", Until: end.At},
		After: store.Cursor{At: position.At.Add(-time.Microsecond), ID: "~"}, // after the ids of all seals
	}
	for s.Number == 0 || s.before(position) {
		page, err := from.Query(ctx, query)
		if err != nil || len(page.Documents) == 0 {
			return Seal{}, nil, -1, err
		}
		number, _ := page.Documents[0].Fields["number"].(int64)
		if s, err = readNumber(ctx, from, e.Tenant, number); err != nil {
			return Seal{Number: number}, nil, -1, err
		}
		query.After = store.Cursor{At: s.At, ID: page.Documents[0].Key.ID}
	}
	leaves, err = readLeaves(ctx, from, e.Tenant, s.Number)
	return s, leaves, slices.IndexFunc(leaves, func(l leaf) bool { return l.id == e.ID }), err
}

// Locate sets the entry's seal and the index of its leaf, and reports whether the entry is as it was sealed.
// An unsealed entry counts as unchanged.
func Locate(ctx context.Context, from ledger.Reader, e *ledger.Entry) (unchanged bool, err error) {
	s, leaves, place, err := locate(ctx, from, *e)
	switch e.Seal = s.Number; {
	case errors.Is(err, ErrBroken), errors.Is(err, store.ErrInvalid):
		return false, nil
	case err != nil || s.Number == 0:
		return err == nil, err
	case place < 0:
		e.Seal = 0
		return false, nil
	}
	e.Leaf = int64(place)
	return isLeaf(*e, leaves[place]), nil
}

// CheckProof checks a proof against the seals that somebody has kept. The error wraps ErrProof.
func CheckProof(text []byte, kept []Seal) (Proven, error) {
	var p inclusion
	err := json.Unmarshal(text, &p)
	if again, other := p.text(); err != nil || other != nil || !bytes.Equal(again, text) {
		return Proven{}, fmt.Errorf("%w: not in the form of one", ErrProof)
	}
	i := slices.IndexFunc(kept, func(s Seal) bool { return s.Tenant == p.Tenant && s.Number == p.Seal })
	if i < 0 {
		return Proven{}, fmt.Errorf("%w: no seal %d of %s was kept", ErrProof, p.Seal, p.Tenant)
	}
	s := kept[i]
	if err := s.Check(); err != nil {
		return Proven{}, fmt.Errorf("%w: the seal was changed: %w", ErrProof, err)
	}
	root, err := hex.DecodeString(s.Root)
	if err == nil {
		//nolint:gosec // a negative one is too large
		err = merkle.VerifyInclusion(hasher, uint64(p.Index), uint64(s.Count), hasher.HashLeaf(p.Entry),
			p.Path, root)
	}
	if err != nil {
		return Proven{}, fmt.Errorf("%w: the hashes do not lead from the entry to the root", ErrProof)
	}
	return Proven{
		Tenant: s.Tenant, Seal: s.Number, SealHash: s.Hash, Root: s.Root, Count: s.Count, Index: p.Index,
		Entry: p.Entry,
	}, nil
}

// Resealed is the kind of a finding that only kept seals reveal: the seal is not the one that was kept.
const Resealed = "resealed"

// Read reads kept seals, single ones or lists, and checks each.
func Read(text []byte) (seals []Seal, err error) {
	for decoder := jsontext.NewDecoder(bytes.NewReader(text)); ; {
		var one struct {
			Seal
			Items []Seal `json:"items"`
		}
		if err := json.UnmarshalDecode(decoder, &one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("it is not JSON after %d seals: %w", len(seals), err)
		}
		if one.Items == nil {
			one.Items = []Seal{one.Seal}
		}
		seals = append(seals, one.Items...)
	}
	if len(seals) == 0 {
		return nil, errors.New("it has no seal: nothing can be compared with it")
	}
	for _, s := range seals {
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("seal %d of %s: %w", s.Number, s.Tenant, err)
		}
	}
	return seals, nil
}

// Comparison is the result of a comparison with seals that were kept elsewhere.
type Comparison struct {
	Kept     int64     `json:"kept_seals" show:"Kept seals"`
	Findings []Finding `json:"findings" show:"Findings"`
	// Unkept lists the tenants without a kept seal: for them, nobody can find that all was sealed again.
	Unkept []string `json:"tenants_without_kept_seals,omitempty" show:"Tenants without kept seals"`
}

// Notes says how many seals are unchanged, if there are no findings.
func (c Comparison) Notes() []string {
	if len(c.Findings) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("Kept seals that are as they were: %d.", c.Kept)}
}

// Failure is the error of a command that compares; empty: there are no findings.
func (c Comparison) Failure() string {
	if len(c.Findings) == 0 {
		return ""
	}
	return fmt.Sprintf("the seals are not those that were kept: %d findings", len(c.Findings))
}

// Compare compares kept seals with the store's. Only this finds that all was sealed again, or that the newest
// seals were deleted.
func Compare(kept, there []Seal) Comparison {
	c, now, tenants := Comparison{Findings: []Finding{}}, map[store.Key]string{}, map[string]bool{}
	for _, s := range there {
		now[sealKey(s.Tenant, s.Number)] = s.Hash
	}
	byTenant := func(a, b Seal) int { return cmp.Compare(a.Tenant, b.Tenant) }
	for _, s := range slices.SortedStableFunc(slices.Values(kept), byTenant) {
		tenants[s.Tenant] = true
		key, detail := sealKey(s.Tenant, s.Number),
			"the seal is not the one that was kept: the books were sealed again"
		hash, found := now[key]
		if found {
			c.Kept++
		} else {
			detail = "the seal that was kept does not exist any more"
		}
		if hash != s.Hash {
			c.Findings = append(c.Findings, Finding{Resealed, s.Tenant, key.String(), s.Number, detail})
		}
	}
	for _, s := range there {
		if !tenants[s.Tenant] {
			c.Unkept, tenants[s.Tenant] = append(c.Unkept, s.Tenant), true
		}
	}
	slices.Sort(c.Unkept)
	return c
}

var hasher = rfc6962.DefaultHasher

// rootOf returns the root of RFC 6962's tree over leaves.
func rootOf(leaves []leaf) []byte {
	switch len(leaves) {
	case 0:
		return hasher.EmptyRoot()
	case 1:
		return leaves[0].hash
	}
	half := halfOf(leaves)
	return hasher.HashChildren(rootOf(leaves[:half]), rootOf(leaves[half:]))
}

// pathOf returns the hashes that lead from a leaf to the root.
func pathOf(leaves []leaf, index int) [][]byte {
	if len(leaves) < 2 {
		return nil
	}
	half := halfOf(leaves)
	if index < half {
		return append(pathOf(leaves[:half], index), rootOf(leaves[half:]))
	}
	return append(pathOf(leaves[half:], index-half), rootOf(leaves[:half]))
}

func halfOf(leaves []leaf) int { return 1 << (bits.Len(uint(len(leaves)-1)) - 1) }
