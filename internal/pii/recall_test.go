package pii_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pii"
)

var update = flag.Bool("update", false, "write the tables of docs/personal-data.md anew")

const (
	// texts is how many are drawn of each spelling, and drawn how many of each kind of id.
	texts = 10_000
	drawn = 100_000
)

// TestAllButPhonesAreFoundNoIDIsRefusedAndThePageSaysHowMany measures how much of what is personal the
// detectors find, and how many ids they take for it by chance. The generators of both know
// nothing of the detectors.
func TestAllButPhonesAreFoundNoIDIsRefusedAndThePageSaysHowMany(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- go test ./internal/pii -run Phones -update -->\n", "<!-- end -->\n"
	page := filepath.Join("..", "..", "docs", "personal-data.md")
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(have), begin)
	_, after, closed := strings.Cut(rest, end)
	require.True(t, ok && closed, "the page has lost the marks of the tables")
	part := 1
	if testing.Short() {
		part = 20 // which is enough for all but the page's numbers
	}
	measured := measure(part)
	for _, one := range measured.recalls {
		if one.kind != "phone" {
			require.Equal(t, [3]int{texts / part, texts / part, texts / part}, one.found, "%s %s", one.kind, one.name)
		}
	}
	for _, one := range measured.refused {
		require.True(t, one.hits <= drawn/part/50_000 || one.Chance && one.hits < drawn/part/20, one.Name)
	}
	require.Equal(t, []string{"99.9 %", "100 %"}, []string{percent(99_999, 100_000), percent(7, 7)}, "a share below all is below a hundred percent")
	if part > 1 {
		return
	}
	want := before + begin + measured.table() + end + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(have), "run: go test ./internal/pii -run Phones -update")
}

// result holds the counts of one run.
type result struct {
	recalls []recall
	refused []refused
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

// measure draws a part of each.
func measure(part int) (r result) {
	for i, s := range spellings {
		g, one := newGenerator(uint64(i)), recall{spelling: s}
		for range texts / part {
			personal := s.draw(g)
			for at, p := range places {
				if found, _ := pii.Detect(pii.UID, p.put(g, personal)); found == s.kind {
					one.found[at]++
				}
			}
		}
		r.recalls = append(r.recalls, one)
	}
	for i, of := range allIDs() {
		g, draw, one := newGenerator(uint64(1000+i)), like(of.Draw...), refused{ids: of}
		for range drawn / part {
			id := draw(g)
			_, asUID := pii.Detect(pii.UID, id)
			if _, asID := pii.Detect(pii.ID, id); asUID || asID {
				one.hits++
			}
		}
		r.refused = append(r.refused, one)
	}
	return r
}

// percent rounds down: what is not all is not 100 %.
func percent(part, of int) string {
	return strings.Replace(fmt.Sprintf("%.1f %%", float64(part*1000/of)/10), ".0", "", 1)
}

// table is what stands between the marks.
func (r *result) table() string {
	var b strings.Builder
	b.WriteString("| found | alone | behind a prefix | in a sentence |\n| --- | ---: | ---: | ---: |\n")
	line := func(name string, found [3]int, of int) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, percent(found[0], of), percent(found[1], of), percent(found[2], of))
	}
	personal := 0
	for _, kind := range []string{"email", "ip", "card", "iban", "phone"} {
		var found [3]int
		of := 0
		for _, one := range r.recalls {
			if one.kind == kind {
				of += texts
				for i, n := range one.found {
					found[i] += n
					personal += n
				}
			}
		}
		line("**"+kind+"**", found, of)
	}
	for _, one := range r.recalls {
		if one.kind == "phone" {
			line("phone, "+one.name, one.found, texts)
		}
	}
	fmt.Fprintf(&b, "\n| refused by chance | of %d |\n| --- | ---: |\n", drawn)
	hits, ids := 0, 0
	for _, one := range r.refused {
		fmt.Fprintf(&b, "| %s | %d |\n", one.Name, one.hits)
		if !one.Chance {
			hits += one.hits
			ids += drawn
		}
	}
	fmt.Fprintf(&b, "\n%d of each spelling and %d of each kind of id were drawn, by seed %d. Of %d ids, without the\nlast four rows, %d were refused: a precision of %s.\n",
		texts, drawn, seed, ids, hits, percent(personal, personal+hits))
	return b.String()
}
