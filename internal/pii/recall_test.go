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

// TestThePageOfPersonalDataHasTheDetectorsRecall measures how much of what is personal the
// detectors find, and how many ids they take for it by chance. The generators of both know
// nothing of the detectors.
func TestThePageOfPersonalDataHasTheDetectorsRecall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it draws two million ids")
	}
	const begin, end = "<!-- go test ./internal/pii -run Recall -update -->\n", "<!-- end -->\n"
	page := filepath.Join("..", "..", "docs", "personal-data.md")
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(have), begin)
	_, after, closed := strings.Cut(rest, end)
	require.True(t, ok && closed, "the page has lost the marks of the tables")
	measured := measure(texts, drawn)
	want := before + begin + measured.table() + end + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(have), "run: go test ./internal/pii -run Recall -update")
}

func TestAllButPhonesAreFoundAndNoIDIsRefused(t *testing.T) {
	t.Parallel()
	r := measure(1000, 5000)
	for _, one := range r.recalls {
		if one.kind != "phone" {
			require.Equal(t, [3]int{r.texts, r.texts, r.texts}, one.found, "%s %s", one.kind, one.name)
		}
	}
	for _, one := range r.refused {
		if one.Chance {
			require.Less(t, one.hits, r.drawn/20, one.Name)
			continue
		}
		require.Zero(t, one.hits, one.Name)
	}
	require.Equal(t, []string{"99.9 %", "100 %"}, []string{percent(99_999, 100_000), percent(7, 7)}, "a share below all is below a hundred percent")
}

// result holds the counts of one run.
type result struct {
	texts, drawn int
	recalls      []recall
	refused      []refused
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

// measure draws so many of each.
func measure(texts, drawn int) result {
	r := result{texts: texts, drawn: drawn}
	for i, s := range spellings {
		g, one := newGenerator(uint64(i)), recall{spelling: s}
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
	for i, of := range allIDs() {
		g, draw, one := newGenerator(uint64(1000+i)), like(of.Draw...), refused{ids: of}
		for range drawn {
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
	line := func(name string, found [3]int, drawn int) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, percent(found[0], drawn), percent(found[1], drawn), percent(found[2], drawn))
	}
	personal := 0
	for _, kind := range []string{"email", "ip", "card", "iban", "phone"} {
		var found [3]int
		drawn := 0
		for _, one := range r.recalls {
			if one.kind == kind {
				drawn += r.texts
				for i, n := range one.found {
					found[i] += n
					personal += n
				}
			}
		}
		line("**"+kind+"**", found, drawn)
	}
	for _, one := range r.recalls {
		if one.kind == "phone" {
			line("phone, "+one.name, one.found, r.texts)
		}
	}
	fmt.Fprintf(&b, "\n| refused by chance | of %d |\n| --- | ---: |\n", r.drawn)
	hits, ids := 0, 0
	for _, one := range r.refused {
		fmt.Fprintf(&b, "| %s | %d |\n", one.Name, one.hits)
		if !one.Chance {
			hits += one.hits
			ids += r.drawn
		}
	}
	fmt.Fprintf(&b, "\n%d of each spelling and %d of each kind of id were drawn, by seed %d. Of %d ids, without the\nlast four rows, %d were refused: a precision of %s.\n",
		r.texts, r.drawn, seed, ids, hits, percent(personal, personal+hits))
	return b.String()
}
