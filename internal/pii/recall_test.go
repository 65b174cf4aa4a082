package pii_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"billhook/internal/pii"
)

const (
	seed = 20261121
	// texts is how many are drawn of each spelling, and drawn how many of each kind of id.
	texts = 10_000
	drawn = 100_000
)

// A spelling is one way to write something personal.
type spelling struct {
	kind, name string
	draw       func(g *generator) string
}

// A place is where something personal stands.
type place struct {
	name string
	put  func(g *generator, personal string) string
}

var places = []place{
	{"alone", func(_ *generator, personal string) string { return personal }},
	{"behind a prefix", func(g *generator, personal string) string { return g.prefix() + personal }},
	{"in a sentence", (*generator).sentence},
}

// recall is how many of a spelling were found, by place.
type recall struct {
	spelling
	found [3]int
}

// refused is how many ids of a kind were taken for something else.
type refused struct {
	ids
	hits int
}

// result holds the counts of one run.
type result struct {
	texts, drawn int
	recalls      []recall
	refused      []refused
}

// measure draws so many of each.
func measure(texts, drawn int) result {
	r := result{texts: texts, drawn: drawn}
	for i, s := range spellings {
		g := newGenerator(uint64(i))
		one := recall{spelling: s}
		for range texts {
			personal := s.draw(g)
			for at, p := range places {
				if found, _ := pii.Detect(pii.UID, p.put(g, personal)); found == s.kind {
					one.found[at]++
				}
			}
		}
		r.recalls = append(r.recalls, one)
	}
	for i, of := range allIDs {
		g := newGenerator(uint64(1000 + i))
		one := refused{ids: of}
		for range drawn {
			id := pick(g, of.forms...)(g)
			_, asUID := pii.Detect(pii.UID, id)
			_, asID := pii.Detect(pii.ID, id)
			if asUID || asID {
				one.hits++
			}
		}
		r.refused = append(r.refused, one)
	}
	return r
}

// total adds up the spellings of a kind, and what was drawn of it.
func (r *result) total(kind string) (found [3]int, drawn int) {
	for _, one := range r.recalls {
		if one.kind == kind {
			drawn += r.texts
			for i, n := range one.found {
				found[i] += n
			}
		}
	}
	return found, drawn
}

// percent rounds down: what is not all is not 100 %.
func percent(part, of int) string {
	tenths := part * 1000 / of
	if tenths%10 == 0 {
		return fmt.Sprintf("%d %%", tenths/10)
	}
	return fmt.Sprintf("%d.%d %%", tenths/10, tenths%10)
}

// table is what stands between the marks.
func (r *result) table() string {
	var b strings.Builder
	b.WriteString("| found | alone | behind a prefix | in a sentence |\n| --- | ---: | ---: | ---: |\n")
	line := func(name string, found [3]int, drawn int) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, percent(found[0], drawn), percent(found[1], drawn), percent(found[2], drawn))
	}
	personal := 0
	for _, kind := range []string{"email", "ip", "card", "iban", "phone"} {
		found, drawn := r.total(kind)
		line("**"+kind+"**", found, drawn)
		for _, n := range found {
			personal += n
		}
		for _, one := range r.recalls {
			if one.kind == kind && kind == "phone" {
				line("phone, "+one.name, one.found, r.texts)
			}
		}
	}
	fmt.Fprintf(&b, "\n| refused by chance | of %d |\n| --- | ---: |\n", r.drawn)
	hits, ids := 0, 0
	for _, one := range r.refused {
		fmt.Fprintf(&b, "| %s | %d |\n", one.name, one.hits)
		if !one.chance {
			hits += one.hits
			ids += r.drawn
		}
	}
	fmt.Fprintf(&b, "\n%d of each spelling and %d of each kind of id were drawn, by seed %d. Of %d ids, without the\nlast four rows, %d were refused: a precision of %s.\n",
		r.texts, r.drawn, seed, ids, hits, percent(personal, personal+hits))
	return b.String()
}

const (
	begin = "<!-- go test ./internal/pii -run Recall -update -->\n"
	end   = "<!-- end -->\n"
)

// written returns the document with the table in it.
func written(document, table string) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", errors.New("recall: personal-data.md has lost the marks of the tables")
	}
	return before + begin + table + end + after, nil
}

// generator draws from a seed.
type generator struct{ *rand.Rand }

func newGenerator(stream uint64) *generator {
	return &generator{rand.New(rand.NewPCG(seed, stream))}
}
