package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/events"
)

// The bounds of a tail.
const (
	tailEvery = 2 * time.Second
	// tailBegins is how many events it begins with, and tailMost how many it asks for each time.
	tailBegins, tailMost = 20, 100
	// tailOverlap: a record is committed up to so long after its time, as instances and their clocks go.
	tailOverlap = 30 * time.Second
)

func (p *program) eventsTail() *cobra.Command {
	filters := console.Fields[events.EventFilter]()
	command := &cobra.Command{
		Use:   "tail",
		Short: "Follow events as they come in and end",
		Long: "It begins with the newest events, and goes on until Ctrl-C: a line for each event that comes in, and another each time that it\n" +
			"has gone on. With --json each line is a JSON object. Where more comes in than it can show, it says so.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			t := &tail{program: p, query: url.Values{}, known: map[string]events.Line{}}
			for _, f := range filters {
				if given := command.Flags().Lookup(flagOf(f)).Value.String(); given != "" {
					t.query.Set(f.Name, given)
				}
			}
			return t.run(command.Context())
		},
	}
	for _, f := range filters {
		flag(command, f)
	}
	return command
}

type tail struct {
	*program
	query url.Values
	// known are the lines of the last look, as they were printed.
	known map[string]events.Line
	// laidOut are the last rows that were printed, which those behind them stand below.
	laidOut [][]string
}

// run looks until ctx ends. A worker that cannot be asked is asked again, but at first.
func (t *tail) run(ctx context.Context) error {
	for began, blind := false, false; ; began = true {
		err := t.look(ctx, began)
		problem, refused := errors.AsType[*problemError](err)
		refused = refused && problem.Status < http.StatusInternalServerError && problem.Status != http.StatusTooManyRequests
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // Who stops it wants no error.
		case refused, err != nil && !began:
			return err
		case err != nil && !blind:
			t.say(fmt.Sprintf("The worker cannot be asked: %v", err))
		case err == nil && blind:
			t.say("The worker answers again.")
		}
		blind = err != nil
		select {
		case <-t.after(tailEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// look prints what is new, or has changed since the look before, the oldest first.
func (t *tail) look(ctx context.Context, again bool) error {
	var page console.List[events.Line]
	t.query.Set("limit", strconv.Itoa(map[bool]int{false: tailBegins, true: tailMost}[again]))
	if err := t.get(ctx, "/v1/ops/events?"+t.query.Encode(), &page); err != nil {
		return err
	}
	seen := func(l events.Line) bool { _, ok := t.known[l.Record()]; return ok }
	if again && page.Next != "" && t.query.Has("since") && !slices.ContainsFunc(page.Items, seen) {
		t.say("More has come in than is shown here; see: bin/billhook events ls")
	}
	var fresh []events.Line
	now, since := map[string]events.Line{}, time.Time{}
	if len(page.Items) > 0 {
		since = page.Items[0].CreatedAt
	}
	for _, l := range slices.Backward(page.Items) {
		now[l.Record()] = l
		if open := l.Status == dedupe.Processing || l.Status == dedupe.Failed; open && since.After(l.CreatedAt) {
			since = l.CreatedAt
		}
		if t.known[l.Record()] != l {
			fresh = append(fresh, l)
		}
	}
	if t.known = now; !since.IsZero() && !t.query.Has("status") {
		t.query.Set("since", since.Add(-tailOverlap).Format(time.RFC3339Nano))
	}
	return t.show(fresh)
}

func (t *tail) say(text string) {
	if t.printf("-- %s\n", text); t.output == asJSON {
		_ = jsonLines(t.stdout, []map[string]string{{"message": text}}) // a closed terminal is no failure of the command
	}
}

// show prints lines in columns, those of the lines before.
func (t *tail) show(fresh []events.Line) error {
	if t.output == asJSON {
		return jsonLines(t.stdout, fresh)
	}
	columns, rows := t.tabled(console.Columns[events.Line]()), t.laidOut
	for _, l := range fresh {
		rows = append(rows, t.cells(columns, l))
	}
	if t.laidOut == nil && len(rows) > 0 {
		rows = headed(columns, rows)
	}
	lines := slices.Collect(strings.Lines(columned(rows)))
	for _, line := range lines[len(t.laidOut):] {
		t.printf("%s", own(line))
	}
	t.laidOut = rows[max(0, len(rows)-tailMost):]
	return nil
}
