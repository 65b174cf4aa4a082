package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	tlog "github.com/transparency-dev/formats/log"
	tlogproof "github.com/transparency-dev/formats/proof"
	merkle "github.com/transparency-dev/merkle/proof"
	"golang.org/x/mod/sumdb/note"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// Authority is who gives out proofs: the installation that they name, and the key that signs
// their checkpoints. Without a key nobody signs, and the proof says so.
type Authority struct {
	Installation string
	Signer       note.Signer
}

// Keys are a pair that is made for signing proofs, in the form of golang.org/x/mod/sumdb/note. The
// private one signs, and is a secret. The verifier key is for everybody who checks proofs.
type Keys struct {
	Name     string `json:"name"`
	Private  string `json:"private_key"`
	Verifier string `json:"verifier_key"`
}

// NewKeys makes a pair of Ed25519 keys from 32 random bytes. The name stands at each signature:
// who signs, such as shop.example.com/books, without spaces and plus signs. The error wraps ErrKey, or
// is that of reading.
func NewKeys(random io.Reader, name string) (Keys, error) {
	private, verifier, err := note.GenerateKey(random, name)
	if err != nil {
		return Keys{}, fmt.Errorf("seal: make keys: %w", err)
	}
	// note makes keys of any name, and takes only some.
	if _, err := note.NewVerifier(verifier); err != nil {
		return Keys{}, fmt.Errorf("%w: a key's name is not empty, and has no spaces and no +", ErrKey)
	}
	return Keys{Name: name, Private: private, Verifier: verifier}, nil
}

// NewAuthority reads a signing key as NewKeys makes it, with white space around it as stored secrets
// have it; empty: nobody signs. The error wraps ErrKey and holds nothing of the key.
func NewAuthority(installation, key string) (Authority, error) {
	authority := Authority{Installation: installation}
	key = strings.TrimSpace(key)
	if key == "" {
		return authority, nil
	}
	signer, err := note.NewSigner(key)
	if err != nil {
		return Authority{}, fmt.Errorf("%w: the signing key begins with PRIVATE+KEY+ and a name", ErrKey)
	}
	authority.Signer = signer
	return authority, nil
}

// Proven is what a proof proves.
type Proven struct {
	Origin       string `json:"origin"`
	Installation string `json:"installation"`
	Tenant       string `json:"tenant"`
	// Seal, SealHash, Root and Count are those of the entry's seal, Index is the entry's place there.
	Seal     int64  `json:"seal"`
	SealHash string `json:"seal_hash"`
	Root     string `json:"root"`
	Count    int64  `json:"count"`
	Index    int64  `json:"index"`
	// SignedBy is the name of the key whose signature was checked; empty: none was.
	SignedBy string `json:"signed_by"`
	// Claims are the names that stand at the checkpoint's signatures, whether or not they were
	// checked; empty: nobody has signed.
	Claims []string `json:"claims"`
	// Entry is the entry's canonical JSON, which the proof carries.
	Entry jsontext.Value `json:"entry"`
}

// What the checkpoint of a seal begins with, and what its extension line does.
const (
	originBegins = "billhook"
	extension    = "seal "
)

// origin names an installation, a tenant and a seal.
func origin(installation, tenant string, number int64) string {
	return strings.Join([]string{originBegins, url.PathEscape(installation), url.PathEscape(tenant), strconv.FormatInt(number, 10)}, "/")
}

// checkpoint is the text of a seal's checkpoint, which may be signed.
func checkpoint(installation string, s Seal) (string, error) {
	root, err := hex.DecodeString(s.Root)
	if err != nil || s.Count < 1 {
		return "", fmt.Errorf("%w: no root", ErrBroken)
	}
	c := tlog.Checkpoint{Origin: origin(installation, s.Tenant, s.Number), Size: uint64(s.Count), Hash: root}
	return string(c.Marshal()) + extension + s.Hash + "\n", nil
}

// Prove returns the proof that an entry stands in its seal, as C2SP's tlog-proof: the entry's
// canonical bytes, its index, the hashes up to the root, and the seal's checkpoint. The error wraps
// ErrNoEntry, ErrUnsealed or ErrBroken, or is that of reading.
func Prove(ctx context.Context, from Reader, entryID string, by Authority) ([]byte, error) {
	doc, err := from.Get(ctx, ledger.Key(entryID))
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return nil, ErrNoEntry
	case err != nil:
		return nil, fmt.Errorf("seal: read entry: %w", err)
	}
	entry, err := ledger.Read(doc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if entry.Seal == 0 {
		return nil, ErrUnsealed
	}
	s, err := readNumber(ctx, from, entry.Tenant, entry.Seal)
	if err != nil {
		return nil, missing(err)
	}
	leaves, err := readLeaves(ctx, from, entry.Tenant, entry.Seal)
	if err != nil {
		return nil, missing(err)
	}
	if entry.Leaf >= int64(len(leaves)) {
		return nil, fmt.Errorf("%w: the seal has no such leaf", ErrBroken)
	}
	canonical, err := entry.Canonical()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	path, err := pathOf(leaves, uint64(entry.Leaf)) //nolint:gosec // Read has it at least 0
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	proof := tlogproof.TLogProof{Index: uint64(entry.Leaf), ExtraData: canonical} //nolint:gosec // the same
	for _, hash := range path {
		proof.Hashes = append(proof.Hashes, [32]byte(hash))
	}
	text, err := checkpoint(by.Installation, s)
	if err != nil {
		return nil, err
	}
	// A checkpoint that nobody signs has the empty line, and no signature after it.
	proof.Checkpoint = []byte(text + "\n")
	if by.Signer != nil {
		if proof.Checkpoint, err = note.Sign(&note.Note{Text: text}, by.Signer); err != nil {
			return nil, fmt.Errorf("seal: sign: %w", err)
		}
	}
	made := proof.Marshal()
	// What does not prove is not given out: the books were changed.
	proven, err := CheckProof(made, "")
	if err == nil {
		err = proven.CheckAgainst(s)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return made, nil
}

// CheckProof checks a proof by itself. With a verifier key, as NewKeys makes it, the
// checkpoint must be signed by it; without one no signature is checked. The error wraps ErrProof or
// ErrKey.
func CheckProof(text []byte, verifierKey string) (Proven, error) {
	var proof tlogproof.TLogProof
	if err := proof.Unmarshal(text); err != nil || !bytes.Equal(proof.Marshal(), text) {
		return Proven{}, fmt.Errorf("%w: not in the form of C2SP's tlog-proof", ErrProof)
	}
	proven, text, err := readCheckpoint(proof.Checkpoint, verifierKey)
	if err != nil {
		return Proven{}, err
	}
	var c tlog.Checkpoint
	rest, err := c.Unmarshal(text)
	if err != nil {
		return Proven{}, fmt.Errorf("%w: the checkpoint is not readable", ErrProof)
	}
	if err := proven.name(c, string(rest)); err != nil {
		return Proven{}, err
	}
	if again, err := checkpoint(proven.Installation, Seal{
		Tenant: proven.Tenant, Number: proven.Seal, Count: proven.Count, Root: proven.Root, Hash: proven.SealHash,
	}); err != nil || again != string(text) {
		return Proven{}, fmt.Errorf("%w: the checkpoint is not as it is written", ErrProof)
	}
	hashes := make([][]byte, len(proof.Hashes))
	for i := range proof.Hashes {
		hashes[i] = proof.Hashes[i][:]
	}
	if err := merkle.VerifyInclusion(hasher, proof.Index, c.Size, leafHash(proof.ExtraData), hashes, c.Hash); err != nil {
		return Proven{}, fmt.Errorf("%w: the hashes do not lead from the entry to the root", ErrProof)
	}
	proven.Index = int64(proof.Index) //nolint:gosec // less than the size, which fits
	proven.Entry = proof.ExtraData
	var entry struct {
		Tenant string `json:"tenant"`
	}
	if err := json.Unmarshal(proven.Entry, &entry); err != nil || entry.Tenant != proven.Tenant {
		return Proven{}, fmt.Errorf("%w: the entry is another tenant's", ErrProof)
	}
	return proven, nil
}

// readCheckpoint returns who has signed a checkpoint, and its text.
func readCheckpoint(signed []byte, verifierKey string) (Proven, []byte, error) {
	proven := Proven{Claims: []string{}}
	text, signatures, found := bytes.Cut(signed, []byte("\n\n"))
	if !found {
		return Proven{}, nil, fmt.Errorf("%w: the checkpoint does not end", ErrProof)
	}
	text = append(bytes.Clone(text), '\n')
	known := note.VerifierList()
	if verifierKey != "" {
		verifier, err := note.NewVerifier(verifierKey)
		if err != nil {
			return Proven{}, nil, fmt.Errorf("%w: the verifier key is a name, a hash and a key, joined by +", ErrKey)
		}
		known = note.VerifierList(verifier)
	}
	if len(signatures) == 0 {
		if verifierKey != "" {
			return Proven{}, nil, fmt.Errorf("%w: nobody has signed it", ErrProof)
		}
		return proven, text, nil
	}
	opened, err := note.Open(signed, known)
	var unverified *note.UnverifiedNoteError
	switch {
	case err == nil:
	case verifierKey == "" && errors.As(err, &unverified):
		opened = unverified.Note
	default:
		return Proven{}, nil, fmt.Errorf("%w: the signature is not that of the key", ErrProof)
	}
	for _, signature := range slices.Concat(opened.Sigs, opened.UnverifiedSigs) {
		// A signature has one form: the last bits of its base64 say nothing, and are 0.
		if raw, err := base64.StdEncoding.DecodeString(signature.Base64); err != nil || base64.StdEncoding.EncodeToString(raw) != signature.Base64 {
			return Proven{}, nil, fmt.Errorf("%w: the signature is not as it is written", ErrProof)
		}
	}
	for _, signature := range opened.Sigs {
		proven.SignedBy = signature.Name
		proven.Claims = append(proven.Claims, signature.Name)
	}
	for _, signature := range opened.UnverifiedSigs {
		proven.Claims = append(proven.Claims, signature.Name)
	}
	return proven, []byte(opened.Text), nil
}

// name takes over what a checkpoint says.
func (p *Proven) name(c tlog.Checkpoint, rest string) error {
	parts := strings.Split(c.Origin, "/")
	hash, isSeal := strings.CutPrefix(strings.TrimSuffix(rest, "\n"), extension)
	sum, err := hex.DecodeString(hash)
	if err != nil || len(sum) != len(c.Hash) || hex.EncodeToString(sum) != hash || len(parts) != 4 || parts[0] != originBegins || !isSeal || c.Size == 0 || c.Size > math.MaxInt32 {
		return fmt.Errorf("%w: the checkpoint is not that of a seal", ErrProof)
	}
	var failed [3]error
	p.Installation, failed[0] = url.PathUnescape(parts[1])
	p.Tenant, failed[1] = url.PathUnescape(parts[2])
	p.Seal, failed[2] = strconv.ParseInt(parts[3], 10, 64)
	if errors.Join(failed[:]...) != nil {
		return fmt.Errorf("%w: the checkpoint names no seal", ErrProof)
	}
	p.Origin, p.SealHash, p.Count, p.Root = c.Origin, hash, int64(c.Size), hex.EncodeToString(c.Hash)
	return nil
}

// CheckAgainst checks what is proven against a seal that somebody has kept. The error wraps
// ErrProof.
func (p Proven) CheckAgainst(s Seal) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("%w: the seal was changed: %w", ErrProof, err)
	}
	if p.Tenant != s.Tenant || p.Seal != s.Number || p.SealHash != s.Hash || p.Root != s.Root || p.Count != s.Count {
		return fmt.Errorf("%w: it is of another seal", ErrProof)
	}
	return nil
}
