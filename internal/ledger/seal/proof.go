package seal

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/note"
)

// Authority is who gives out proofs: the installation that they name, and the key that signs
// their checkpoints. Without a key nobody signs, and the proof says so.
type Authority struct {
	Installation string
	Signer       note.Signer
}

// NewAuthority reads a signing key as note.GenerateKey makes it; empty: nobody signs. The error
// wraps ErrKey and holds nothing of the key.
func NewAuthority(installation, _ string) (Authority, error) {
	return Authority{Installation: installation}, errors.ErrUnsupported
}

// Proven is what a proof proves.
type Proven struct {
	Origin string `json:"origin"`
	Tenant string `json:"tenant"`
	// Seal, SealHash, Root and Count are those of the entry's seal, Index is the entry's place there.
	Seal     int64  `json:"seal"`
	SealHash string `json:"seal_hash"`
	Root     string `json:"root"`
	Count    int64  `json:"count"`
	Index    int64  `json:"index"`
	// SignedBy is the name of the key whose signature was checked; empty: none was.
	SignedBy string `json:"signed_by"`
	// Entry is the entry's canonical JSON, which the proof carries.
	Entry jsontext.Value `json:"entry"`
}

// Prove returns the proof that an entry stands in its seal, as C2SP's tlog-proof: the entry's
// canonical bytes, its index, the hashes up to the root, and the seal's checkpoint. The error wraps
// ErrNoEntry, ErrUnsealed or ErrBroken, or is that of reading.
func Prove(_ context.Context, _ Reader, _ string, _ Authority) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// CheckProof checks a proof by itself. With a verifier key, as note.GenerateKey makes it, the
// checkpoint must be signed by it; without one no signature is checked. The error wraps ErrProof or
// ErrKey.
func CheckProof(_ []byte, _ string) (Proven, error) {
	return Proven{}, errors.ErrUnsupported
}

// CheckAgainst checks what is proven against a seal that somebody has kept. The error wraps
// ErrProof.
func (p Proven) CheckAgainst(Seal) error { return errors.ErrUnsupported }
