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
	"billhook/internal/pipeline/events"
)

// The bounds of a tail.
const (
	tailEvery = 2 * time.Second
	// tailBegins is how many events it begins with, and tailMost how many it asks for each time.
	tailBegins, tailMost = "20", 100
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
			t := &tail{program: p, query: url.Values{"limit": {tailBegins}}}
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
	// known are the lines of the last look, as they were printed; nil: nothing was looked at yet.
	known map[string]events.Line
	// laidOut are the last rows that were printed, which those behind them stand below.
	laidOut [][]string
}

// run looks until ctx ends. A worker that cannot be asked is asked again, but at first.
func (t *tail) run(ctx context.Context) error {
	for blind := false; ; {
		err := t.look(ctx)
		problem, refused := errors.AsType[*problemError](err)
		refused = refused && problem.Status < http.StatusInternalServerError && problem.Status != http.StatusTooManyRequests
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // Who stops it wants no error.
		case refused, err != nil && t.known == nil:
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

// look prints what is new, or has changed since the look before, the oldest first. Of events in one status it asks for no
// time: one comes to it long after it was created.
func (t *tail) look(ctx context.Context) error {
	var page console.List[events.Line]
	if err := t.get(ctx, "/v1/ops/events?"+t.query.Encode(), &page); err != nil {
		return err
	}
	var fresh []events.Line
	now, missed, since := map[string]events.Line{}, page.Next != "" && t.known != nil, time.Now()
	for _, l := range page.Items {
		before, seen := t.known[l.Record()]
		missed = missed && !seen
		if now[l.Record()] = l; before != l {
			fresh = slices.Insert(fresh, 0, l)
		}
		since = l.CreatedAt
	}
	if missed {
		t.say("More has come in than is shown here; see: bin/billhook events ls")
	}
	if t.known == nil && !t.query.Has("status") {
		t.query.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	t.known = now
	t.query.Set("limit", strconv.Itoa(tailMost))
	if t.output == asJSON {
		return jsonLines(t.stdout, fresh)
	}
	columns := t.tabled(console.Columns[events.Line]())
	printed, rows := len(t.laidOut), t.laidOut
	if printed == 0 && len(fresh) > 0 {
		rows = headed(columns, nil)
	}
	for _, l := range fresh {
		rows = append(rows, t.cells(columns, l))
	}
	for _, line := range slices.Collect(strings.Lines(columned(rows)))[printed:] {
		t.printf("%s", own(line))
	}
	t.laidOut = rows[max(0, len(rows)-tailMost):]
	return nil
}

func (t *tail) say(text string) {
	if t.printf("-- %s\n", text); t.output == asJSON {
		_ = jsonLines(t.stdout, []map[string]string{{"message": text}}) // a closed terminal is no failure of the command
	}
}
