package seal

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/internal/platform/store"
)

// The kinds of finding.
const (
	// Changed: the document is not what was sealed, or not readable.
	Changed = "changed"
	// Missing: the document is gone.
	Missing = "missing"
	// Added: the document claims a place that no seal gives it.
	Added = "added"
	// Moved: the document says that it has another place than its seal gives it.
	Moved = "moved"
	// Unfounded: neither the record of an event nor the audit names the entry, so it is not sealed.
	Unfounded = "unfounded"
	// Late: the entry came into a month, or under a seal, after that month was closed.
	Late = "late"
)

// Finding is one thing that verification found wrong.
type Finding struct {
	Kind   string `json:"kind" store:"kind" show:"Found"`
	Tenant string `json:"tenant" store:"tenant" show:"Tenant"`
	// Document is the document that it is about: its collection and id.
	Document string `json:"document" store:"document" show:"Document"`
	// Seal is the number of the seal in which it was found; 0: none.
	Seal int64 `json:"seal,omitzero" store:"seal" show:"Seal"`
	// Detail says what is wrong, in words without a stored value.
	Detail string `json:"detail" store:"detail" show:"Wrong with it"`
}

// Log writes the line by which an alert knows of the finding.
func (f Finding) Log(ctx context.Context, log *slog.Logger) {
	log.LogAttrs(ctx, slog.LevelError, "books do not verify", slog.String("tenant", f.Tenant), slog.String("kind", f.Kind),
		slog.String("document", f.Document), slog.Int64("seal", f.Seal))
}

// Counts is what a verification has looked at.
type Counts struct {
	Seals int64 `json:"seals" store:"seals" show:"Seals"`
	// Entries that were compared with their seals, and Unsealed ones that were read.
	Entries  int64 `json:"entries" store:"entries" show:"Sealed entries"`
	Unsealed int64 `json:"unsealed" store:"unsealed" show:"Entries without a seal"`
	// Accounts whose balances were compared with their entries.
	Accounts int64 `json:"accounts" store:"accounts" show:"Accounts of points"`
}

// Verified is a page of a verification: what was looked at, what was found.
type Verified struct {
	Counts
	Findings []Finding `json:"findings" show:"Findings"`
	// Next is where the next page begins; empty: this was the last.
	Next string `json:"next"`

	read int64 // documents, about
}

// Join adds what the parts before it have looked at and found.
func (v *Verified) Join(before any) (page string) {
	if b, ok := before.(*Verified); ok {
		v.Seals, v.Entries, v.Unsealed, v.Accounts = v.Seals+b.Seals, v.Entries+b.Entries, v.Unsealed+b.Unsealed, v.Accounts+b.Accounts
		v.Findings = append(append([]Finding{}, b.Findings...), v.Findings...)
	}
	return v.Next
}

// Alerts reports whether anything is wrong.
func (v Verified) Alerts() bool { return len(v.Findings) > 0 }

// Notes says what it has come to.
func (v Verified) Notes() []string {
	switch {
	case len(v.Findings) > 0:
		return []string{fmt.Sprintf("The books do not verify: %d findings.", len(v.Findings))}
	case v.Next != "":
		return []string{"Nothing was found so far. It is not done yet."}
	default:
		return []string{"The books verify: nothing was found."}
	}
}

// ErrPage: the text is not the Next of a page.
var ErrPage = errors.New("seal: no such page")

// Verifier checks books, a bounded part at a time. Both fields are required.
type Verifier struct {
	From    Reader
	Origins Origins
}

// sealsPerPage is how many seals a page of a verification checks.
const sealsPerPage = 10

// What a page of the entries begins with. A page of the chain begins with a number.
const entriesPage = "entries "

// Page checks a bounded part of a tenant's books, from the Next of the page before: the seals, each with its
// leaves and entries; then all entries, for those that no seal holds; then the accounts, whose balances are
// compared with the sums of their entries. The error wraps ErrPage, or is that of reading.
func (v Verifier) Page(ctx context.Context, tenant, at string) (Verified, error) {
	part := verification{Verifier: v, tenant: tenant, done: Verified{Findings: []Finding{}}}
	var err error
	if part.closings, err = v.Origins.Closings(ctx, tenant); err != nil {
		return part.done, err
	}
	if after, ok := strings.CutPrefix(at, entriesPage); ok {
		err = part.entries(ctx, after)
	} else if place, ok := strings.CutPrefix(at, accountsPage); ok {
		err = part.accounts(ctx, place)
	} else {
		err = part.chain(ctx, at)
	}
	return part.done, err
}

type verification struct {
	Verifier

	tenant string
	done   Verified
	// closings are the moments from which months take no entries.
	closings map[string]time.Time
}

func (v *verification) find(kind string, key store.Key, number int64, detail string) {
	v.done.Findings = append(v.done.Findings, Finding{Kind: kind, Tenant: v.tenant, Document: key.String(), Seal: number, Detail: detail})
}

// link is what a seal is compared with: the one before it, nil where that cannot be read.
type link struct {
	number int64
	seal   *Seal
}

// first is what the first seal is compared with.
var first = link{seal: &Seal{Hash: firstPrevious}}

func (l link) is(hash string) bool { return l.seal != nil && l.seal.Hash == hash }

// chain checks the seals behind a place, and the head where they end.
func (v *verification) chain(ctx context.Context, at string) error {
	last, after, err := v.begin(ctx, at)
	if err != nil {
		return err
	}
	page, err := v.From.Query(ctx, store.Query{Collection: Seals, IDPrefix: HeadID(v.tenant) + "~", After: store.Cursor{ID: after}, Limit: sealsPerPage})
	if err != nil {
		return fmt.Errorf("seal: read seals: %w", err)
	}
	v.done.read += 2 * int64(len(page.Documents)) // and their leaves
	lists, err := v.lists(ctx, after, page.Next.ID)
	if err != nil {
		return err
	}
	for _, doc := range page.Documents {
		after = doc.Key.ID
		number, _ := strconv.ParseInt(after[strings.LastIndexByte(after, '~')+1:], 10, 64) // 0: there is none
		if number <= last.number || doc.Key != sealKey(v.tenant, number) {
			v.find(Added, doc.Key, 0, "no seal has this id")
			continue
		}
		if number > last.number+1 {
			v.gap(last.number+1, number-1)
			last = link{number: number - 1}
		}
		if last, err = v.seal(ctx, doc, number, last, lists); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(lists)) {
		_, err := v.From.Get(ctx, store.Key{Collection: Seals, ID: id})
		switch {
		case err == nil: // sealed between the two queries
		case errors.Is(err, store.ErrNotFound):
			v.find(Added, lists[id].Key, 0, "there are leaves without a seal")
		default:
			return fmt.Errorf("seal: read seal: %w", err)
		}
	}
	if !page.Next.IsZero() {
		v.done.Next = last.next(after)
		return nil
	}
	return v.end(ctx, last, after)
}

func (l link) next(after string) string { return fmt.Sprint(l.number, " ", after) }

// begin reads a place in the chain: the last seal that was checked, and the id behind it.
func (v *verification) begin(ctx context.Context, at string) (link, string, error) {
	if at == "" {
		return first, HeadID(v.tenant) + "~", nil
	}
	text, after, _ := strings.Cut(at, " ")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 0 || !strings.HasPrefix(after, HeadID(v.tenant)+"~") {
		return link{}, "", ErrPage
	}
	if number == 0 {
		return first, after, nil
	}
	s, err := readNumber(ctx, v.From, v.tenant, number)
	switch {
	case errors.Is(err, ErrBroken), errors.Is(err, store.ErrNotFound):
		return link{number: number}, after, nil
	case err != nil:
		return link{}, "", err
	}
	return link{number, &s}, after, nil
}

// lists reads the leaves of the seals behind an id, up to another; empty: up to the end.
func (v *verification) lists(ctx context.Context, after, until string) (map[string]store.Document, error) {
	found := map[string]store.Document{}
	query := store.Query{Collection: Leaves, IDPrefix: HeadID(v.tenant) + "~", After: store.Cursor{ID: after}, Limit: sealsPerPage}
	for doc, err := range store.Each(ctx, v.From, query) {
		if err != nil {
			return nil, err
		}
		if until != "" && doc.Key.ID > until {
			break
		}
		found[doc.Key.ID] = doc
		if doc.Key.ID == until {
			break
		}
	}
	return found, nil
}

func (v *verification) gap(first, last int64) {
	detail := "the seal is gone"
	if last > first {
		detail = fmt.Sprintf("the seals %d to %d are gone", first, last)
	}
	v.find(Missing, sealKey(v.tenant, first), first, detail)
}

func (v *verification) end(ctx context.Context, last link, after string) error {
	key := store.Key{Collection: Heads, ID: HeadID(v.tenant)}
	v.done.Next = entriesPage
	h, err := readHead(ctx, v.From, v.tenant)
	switch {
	case errors.Is(err, ErrBroken):
		v.find(Changed, key, 0, "the head is not readable")
	case err != nil:
		return err
	case h.Number == 0 && last.number > 0:
		v.find(Missing, key, 0, "there are seals, and no head")
	case h.Number != last.number && last.is(h.Hash):
		v.find(Changed, key, last.number, "the head contradicts the last seal")
	case h.Number > last.number:
		// Either sealed since, or gone.
		_, err := v.From.Get(ctx, sealKey(v.tenant, last.number+1))
		switch {
		case err == nil:
			v.done.Next = last.next(after)
		case errors.Is(err, store.ErrNotFound):
			v.gap(last.number+1, h.Number)
		default:
			return fmt.Errorf("seal: read seal: %w", err)
		}
	case h.Number < last.number:
		v.find(Changed, key, last.number, "there are seals behind the head")
	case last.seal != nil && last.number > 0 && (!last.is(h.Hash) || !maps.Equal(h.Periods, last.seal.Periods)):
		v.find(Changed, key, last.number, "the head contradicts the last seal")
	}
	return nil
}

// seal checks one seal, and its leaves and entries, which it takes out of lists. It returns what
// the next one is compared with.
func (v *verification) seal(ctx context.Context, doc store.Document, number int64, last link, lists map[string]store.Document) (link, error) {
	v.done.Seals++
	leaves, listed := lists[doc.Key.ID]
	delete(lists, doc.Key.ID)
	s, err := readSeal(doc)
	switch {
	case err != nil:
		v.find(Changed, doc.Key, number, "the seal is not readable")
	case s.Tenant != v.tenant || s.Number != number:
		v.find(Changed, doc.Key, number, "the seal says that it is another")
	case s.Check() != nil:
		v.find(Changed, doc.Key, number, "its hash is not that of what it says")
	case last.seal != nil && !last.is(s.Previous):
		v.find(Changed, doc.Key, number, "it does not follow the seal before")
	default:
		if err := v.sums(ctx, s, last); err != nil {
			return link{}, err
		}
	}
	now := link{number: number}
	if err == nil && s.Check() == nil {
		now.seal = &s
	}
	key := store.Key{Collection: Leaves, ID: doc.Key.ID}
	if !listed {
		v.find(Missing, key, number, "the leaves are gone")
		return now, nil
	}
	list, err := leavesOf(leaves, v.tenant, number)
	if err != nil {
		v.find(Changed, key, number, "the leaves are not readable")
		return now, nil //nolint:nilerr // it is a finding
	}
	if now.seal != nil && (int64(len(list)) != s.Count || hex.EncodeToString(rootOf(list)) != s.Root) {
		v.find(Changed, key, number, "the leaves are not those of the root")
	}
	return now, v.sealed(ctx, number, list, now.seal)
}

// sums checks that the running sums of a seal are those before and its own.
func (v *verification) sums(ctx context.Context, s Seal, last link) error {
	if last.seal == nil {
		return nil // the seal before is found wrong
	}
	periods := map[string]int64{}
	maps.Copy(periods, last.seal.Periods)
	want := map[string]Totals{}
	for period, totals := range s.Totals {
		periods[period] = s.Number
		want[period] = Totals{}
		if number, sealed := last.seal.Periods[period]; sealed {
			before := *last.seal
			if number != last.number {
				var err error
				before, err = readNumber(ctx, v.From, v.tenant, number)
				if errors.Is(err, ErrBroken) || errors.Is(err, store.ErrNotFound) {
					return nil // that one is found wrong
				}
				if err != nil {
					return err
				}
			}
			want[period] = before.Running[period].clone()
		}
		if err := addAll(want, period, totals); err != nil {
			v.find(Changed, sealKey(v.tenant, s.Number), s.Number, "its sums are too large")
			return nil //nolint:nilerr // it is a finding
		}
	}
	if !reflect.DeepEqual(s.Running, want) || !maps.Equal(s.Periods, periods) {
		v.find(Changed, sealKey(v.tenant, s.Number), s.Number, "its running sums are not those before and its own")
	}
	return nil
}
