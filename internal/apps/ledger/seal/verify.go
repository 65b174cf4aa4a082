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
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/apps/ledger"
	"billhook/internal/console"
	"billhook/internal/platform/store"
)

// The kinds of finding.
const (
	// Changed: the document is not as it was sealed, or not readable.
	Changed = "changed"
	// Missing: the document does not exist any more.
	Missing = "missing"
	// Added: no seal holds the document, although seals have passed its position.
	Added = "added"
	// Unfounded: neither the record of an event nor the audit names the entry, so it is not sealed.
	Unfounded = "unfounded"
	// Late: the entry was posted in a month, or sealed, after that month was closed.
	Late = "late"
)

// Finding is one thing that verification found wrong.
type Finding struct {
	Kind     string `json:"kind" store:"kind" show:"Found"`
	Tenant   string `json:"tenant" store:"tenant" show:"Tenant"`
	Document string `json:"document" store:"document" show:"Document"`
	// Seal is the number of the seal with the finding; 0: none.
	Seal int64 `json:"seal,omitzero" store:"seal" show:"Seal"`
	// Detail says what is wrong, in words without a stored value.
	Detail string `json:"detail" store:"detail" show:"Wrong with it"`
}

// Log writes the line on which an alert is defined.
func (f Finding) Log(ctx context.Context, log *slog.Logger) {
	log.LogAttrs(ctx, slog.LevelError, "books do not verify", slog.String("tenant", f.Tenant),
		slog.String("kind", f.Kind),
		slog.String("document", f.Document), slog.Int64("seal", f.Seal))
}

// Counts is how many documents a verification has checked.
type Counts struct {
	Seals    int64 `json:"seals" store:"seals" show:"Seals"`
	Entries  int64 `json:"entries" store:"entries" show:"Sealed entries"`
	Unsealed int64 `json:"unsealed" store:"unsealed" show:"Entries without a seal"`
	Accounts int64 `json:"accounts" store:"accounts" show:"Accounts of points"`
}

func (c *Counts) add(more Counts) {
	c.Seals, c.Entries, c.Unsealed, c.Accounts = c.Seals+more.Seals, c.Entries+more.Entries,
		c.Unsealed+more.Unsealed, c.Accounts+more.Accounts
}

// Verified is a page of a verification.
type Verified struct {
	Counts
	Findings []Finding `json:"findings" show:"Findings"`
	// Next is where the next page begins; empty: this was the last.
	Next string `json:"next"`

	reads int64 // about what the database charges for; the reads of Origins are estimated
}

// Join adds the counts and findings of earlier pages.
func (v *Verified) Join(before any) (page string) {
	if b, ok := before.(*Verified); ok {
		v.add(b.Counts)
		v.Findings = append(append([]Finding{}, b.Findings...), v.Findings...)
	}
	return v.Next
}

// Alerts reports whether anything is wrong.
func (v Verified) Alerts() bool { return len(v.Findings) > 0 }

// Failure says that something is wrong.
func (v Verified) Failure() string {
	if v.Alerts() {
		return fmt.Sprintf("the books do not verify: %d findings", len(v.Findings))
	}
	return ""
}

// Notes says what was found.
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
var ErrPage = console.Refuse(console.Malformed, "page_invalid", "The page is the next of an earlier answer.")

// Verifier verifies the books, a page at a time. From and Origins are required.
type Verifier struct {
	From    ledger.Reader
	Origins Origins
	// Moves, if not nil, gives a new time to an entry that seals have passed although something vouches for it:
	// the entry is a finding, and is sealed next.
	Moves store.Committer
}

// The bounds of a page: how many seals and lists of leaves it has, and after how many documents it reads no
// further account.
const (
	sealsPerPage   = 10
	accountReads   = 5000
	accountsAtOnce = 50 // by one query
)

// The parts of a verification, in their order.
const (
	partSeals    = "seals"
	partEntries  = "entries"
	partAccounts = "accounts"
)

// position is where a page begins; its JSON is the Next of the page before. The zero position is the end.
type position struct {
	Part  string `json:"part"`
	After string `json:"after,omitzero"`
	// Seal is the last seal that was checked; Seen counts the entries up to it.
	Seal int64 `json:"seal,omitzero"`
	Seen int64 `json:"seen,omitzero"`
}

// All returns a page of the verification of all tenants' books, one after the other, and finally of the
// entries without a tenant. Its pages are as in Page.
func (v Verifier) All(ctx context.Context, at string) (part Verified, err error) {
	tenant, place, later := strings.Cut(at, "|")
	if at == "" {
		tenant, err = tenantBehind(ctx, v.From, "")
	} else if !later {
		err = ErrPage
	}
	if err == nil {
		part, err = v.Page(ctx, tenant, place)
	}
	switch {
	case err != nil, part.Next == "" && tenant == "":
		return part, err
	case part.Next == "":
		tenant, err = tenantBehind(ctx, v.From, HeadID(tenant))
	}
	part.Next = tenant + "|" + part.Next
	return part, err
}

// Page returns a page of the verification of a tenant's books, beginning at the Next of the page before:
// first each seal with its leaves and entries; then the entries after the last seal, or all if their number
// shows that seals lack some; then the accounts, whose balances are compared with the sums of their entries.
// Without a tenant it verifies the entries without a tenant, and those of tenants without a chain. The error
// wraps ErrPage, or is a read error.
func (v Verifier) Page(ctx context.Context, tenant, at string) (Verified, error) {
	part := verification{
		Verifier: v, tenant: tenant, done: Verified{Findings: []Finding{}}, reads: &reads{Reader: v.From},
	}
	part.From = part.reads
	p := position{Part: partSeals}
	if tenant == "" {
		p.Part = partEntries
	}
	if at != "" && json.Unmarshal([]byte(at), &p, json.RejectUnknownMembers(true)) != nil {
		return part.done, ErrPage
	}
	check := map[string]func(context.Context, position) (position, error){
		partSeals: part.chain, partEntries: part.entries, partAccounts: part.accounts,
	}[p.Part]
	if check == nil || p.Seal < 0 || p.Seen < 0 || tenant == "" && p.Part != partEntries {
		return part.done, ErrPage
	}
	var err error
	if part.closings, err = v.Origins.Closings(ctx, tenant); err == nil {
		p, err = check(ctx, p)
	}
	if err == nil && p != (position{}) {
		text, failed := json.Marshal(p)
		part.done.Next, err = string(text), failed
	}
	part.done.reads = part.reads.n.Load()
	return part.done, err
}

type verification struct {
	Verifier

	tenant   string
	reads    *reads
	done     Verified
	seen     int64 // entries
	closings map[string]time.Time
}

// reads counts the documents that the database charges for: at least one for each call, and one for each
// thousand that are counted.
type reads struct {
	ledger.Reader

	n atomic.Int64
}

// Get reads a document.
func (r *reads) Get(ctx context.Context, key store.Key) (store.Document, error) {
	r.n.Add(1)
	return r.Reader.Get(ctx, key)
}

// Query reads a page, and counts its documents.
func (r *reads) Query(ctx context.Context, query store.Query) (store.Page, error) {
	page, err := r.Reader.Query(ctx, query)
	r.n.Add(max(1, int64(len(page.Documents))+page.Count/1000))
	return page, err
}

func (v *verification) find(kind string, key store.Key, number int64, detail string) {
	v.done.Findings = append(v.done.Findings,
		Finding{Kind: kind, Tenant: v.tenant, Document: key.String(), Seal: number, Detail: detail})
}

// readOrNone reads a seal to compare others with it. If it cannot be read, it has only its number.
func (v *verification) readOrNone(ctx context.Context, number int64) (Seal, error) {
	if number == 0 {
		return Seal{Tenant: v.tenant, Hash: firstPrevious, Periods: map[string]int64{}}, nil
	}
	s, err := readNumber(ctx, v.From, v.tenant, number)
	if errors.Is(err, ErrBroken) {
		return Seal{Number: number}, nil
	}
	return s, err
}

// chain verifies the seals and leaves after a position, and the head after the last.
func (v *verification) chain(ctx context.Context, p position) (position, error) {
	last, err := v.readOrNone(ctx, p.Seal)
	if err != nil {
		return p, err
	}
	ids, behind := []string{}, "" // ids after behind are on the next page
	there := map[store.Key]store.Document{}
	query := store.Query{IDPrefix: HeadID(v.tenant) + "~", After: store.Cursor{ID: p.After}, Limit: sealsPerPage}
	for _, query.Collection = range []string{Leaves, Seals} { // in this order, new leaves have their seal
		page, err := v.From.Query(ctx, query)
		if err != nil {
			return p, fmt.Errorf("seal: read %s: %w", query.Collection, err)
		}
		for _, doc := range page.Documents {
			there[doc.Key], ids = doc, append(ids, doc.Key.ID)
		}
		if next := page.Next.ID; next != "" && (behind == "" || next < behind) {
			behind = next
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if behind != "" && id > behind {
			break
		}
		p.After = id
		doc, sealed := there[store.Key{Collection: Seals, ID: id}]
		number, _ := strconv.ParseInt(id[strings.LastIndexByte(id, '~')+1:], 10, 64) // 0: there is none
		switch {
		case !sealed:
			v.find(Added, store.Key{Collection: Leaves, ID: id}, 0, "there are leaves without a seal")
			continue
		case number <= last.Number || doc.Key != sealKey(v.tenant, number):
			v.find(Added, doc.Key, 0, "no seal has this id")
			continue
		case number > last.Number+1:
			v.gap(last.Number+1, number-1)
			last = Seal{Number: number - 1}
		}
		if last, err = v.seal(ctx, doc, number, last); err != nil {
			return p, err
		}
	}
	p.Seen += v.seen
	if p.Seal = last.Number; behind != "" {
		return p, nil
	}
	return v.end(ctx, last, p)
}

func (v *verification) gap(first, last int64) {
	detail := "the seal does not exist"
	if last > first {
		detail = fmt.Sprintf("the seals %d to %d do not exist", first, last)
	}
	v.find(Missing, sealKey(v.tenant, first), first, detail)
}

// end compares the head with the last seal, and verifies the entries after it. If another seal was made
// meanwhile, the next page begins with that.
func (v *verification) end(ctx context.Context, last Seal, p position) (position, error) {
	p.After = ID(v.tenant, p.Seal)
	key := headKey(v.tenant)
	h, err := readHead(ctx, v.From, v.tenant)
	switch same := !last.unread() && last.Hash == h.Hash; {
	case errors.Is(err, ErrBroken):
		v.find(Changed, key, 0, "the head is not readable")
	case err != nil:
		return p, err
	case h.Number == 0 && last.Number > 0:
		v.find(Missing, key, 0, "there are seals, and no head")
	case h.Number > last.Number && !same:
		doc, err := store.Find(ctx, v.From, sealKey(v.tenant, last.Number+1))
		if err != nil || doc.Version != 0 {
			return p, err
		}
		v.gap(last.Number+1, h.Number)
	case h.Number < last.Number && !same:
		v.find(Changed, key, last.Number, "there are seals behind the head")
	case !last.unread() && (h.Number != last.Number || !same || h.Through != last.Through ||
		!maps.Equal(h.Periods, last.Periods)):
		v.find(Changed, key, last.Number, "the head contradicts the last seal")
	}
	return v.tail(ctx, last, p)
}

func (v *verification) seal(ctx context.Context, doc store.Document, number int64, last Seal) (Seal, error) {
	v.done.Seals++
	now := Seal{Number: number}
	s, err := decode[Seal](doc)
	switch {
	case err != nil:
		v.find(Changed, doc.Key, number, "the seal is not readable")
	case s.Tenant != v.tenant || s.Number != number:
		v.find(Changed, doc.Key, number, "the seal has the fields of another")
	case s.Check() != nil:
		v.find(Changed, doc.Key, number, "its hash is not that of its content")
	case !last.unread() && s.Previous != last.Hash:
		v.find(Changed, doc.Key, number, "it does not follow the seal before")
		now = s
	default:
		now = s
		if err := v.sums(ctx, s, last); err != nil {
			return now, err
		}
	}
	list, err := readLeaves(ctx, v.From, v.tenant, number)
	switch key := leavesKey(v.tenant, number); {
	case errors.Is(err, errGone):
		v.find(Missing, key, number, "the leaves do not exist")
		return now, nil
	case errors.Is(err, ErrBroken):
		v.find(Changed, key, number, "the leaves are not readable")
		return now, nil
	case err != nil:
		return now, err
	case !now.unread() && (int64(len(list)) != s.Count || hex.EncodeToString(rootOf(list)) != s.Root):
		v.find(Changed, key, number, "the leaves do not have the seal's root")
	}
	return now, v.sealed(ctx, last, now, list)
}

// sums checks that the running sums of a seal are the earlier ones and its own.
func (v *verification) sums(ctx context.Context, s Seal, last Seal) error {
	if last.unread() {
		return nil // the seal before is a finding already
	}
	want, periods, head := map[string]Totals{}, maps.Clone(last.Periods), last.head()
	for period, totals := range s.Totals {
		before, err := head.running(ctx, v.From, period)
		if errors.Is(err, ErrBroken) {
			return nil // that seal is a finding itself
		}
		if err != nil {
			return err
		}
		periods[period] = s.Number
		if errors.Join(add(want, period, before), add(want, period, totals)) != nil {
			v.find(Changed, sealKey(v.tenant, s.Number), s.Number, "its sums are too large")
			return nil //nolint:nilerr // it is a finding
		}
	}
	if !reflect.DeepEqual(s.Running, want) || !maps.Equal(s.Periods, periods) {
		v.find(Changed, sealKey(v.tenant, s.Number), s.Number,
			"its running sums are not the earlier ones and its own")
	}
	return nil
}
