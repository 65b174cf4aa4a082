package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/console/ops"
)

const tailPath = "/v1/ops/events/tail"

// The bounds of a tail.
const (
	// tailTries is how often a stream is asked for in a row, in vain.
	tailTries = 30
	// tailSilence is how long a stream may say nothing: it has a comment every two seconds.
	tailSilence = 15 * time.Second
)

// eventsCommand has the commands about events that are no operation.
func (p *program) eventsCommand() *cobra.Command {
	command := p.asks(&cobra.Command{Use: "events"})
	command.AddCommand(p.eventsTail(), p.tryCommand())
	return command
}

func (p *program) eventsTail() *cobra.Command {
	var filters []console.Field
	command := &cobra.Command{
		Use:   "tail",
		Short: "Show what comes in, and what becomes of it, as it happens",
		Long: "It begins with the newest events, and goes on until Ctrl-C: a line for each event that comes in, and another each time that it\n" +
			"has gone on. With --json each line is a JSON object. Where more comes in than it can show, it says so.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			p.writeLines()
			query := url.Values{}
			for _, f := range filters {
				set(query, f.Name, command.Flags().Lookup(flagOf(f)).Value.String())
			}
			return (&tail{program: p, ask: p.ask(), query: query, again: ops.TailEvery, known: map[string]ops.Line{}}).run(command.Context())
		},
	}
	for _, f := range console.Fields[ops.EventFilter]() {
		filters = append(filters, f)
		flag(command, f)
	}
	return command
}

type tail struct {
	*program
	ask   client
	query url.Values
	// last is the id of the last event of the stream.
	last string
	// known are the lines as they were printed last: the worker repeats some where a stream goes on.
	known map[string]ops.Line
	// again is the wait before a stream is asked for anew.
	again time.Duration
	// blind: the last look of the worker has failed.
	blind bool
	// widths are those of the columns so far; none: nothing was printed yet.
	widths []int
}

// errNoMore: the worker has nothing more to say.
var errNoMore = errors.New("no more")

// run prints until ctx ends. A stream ends after ten minutes, and where its instance does; the next one
// goes on where it was.
func (t *tail) run(ctx context.Context) error {
	for tries := 0; ; {
		heard, err := t.stream(ctx)
		var problem *problemError
		refused := errors.As(err, &problem) && problem.Status < http.StatusInternalServerError && problem.Status != http.StatusTooManyRequests
		if heard {
			tries = 0
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, errNoMore):
			return nil //nolint:nilerr // The person has ended it, or there is no more to come.
		case refused, err != nil && t.last == "" && !heard && tries == 0, tries == tailTries:
			return err
		case err != nil && tries == 1:
			t.say(fmt.Sprintf("No stream: %v. It is asked for again.", err))
		}
		tries++
		select {
		case <-time.After(t.again):
		case <-ctx.Done():
			return nil
		}
	}
}

func (t *tail) stream(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(tailSilence, cancel)
	defer silence.Stop()
	path := tailPath
	if len(t.query) > 0 {
		path += "?" + t.query.Encode()
	}
	request, err := t.ask.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return false, err
	}
	request.Header.Set("Accept", "text/event-stream")
	if t.last != "" {
		request.Header.Set("Last-Event-ID", t.last)
	}
	response, err := (&http.Client{Transport: t.ask.http.Transport}).Do(request)
	if err != nil {
		return false, fmt.Errorf("ask the worker: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent: // by which a server ends the streams of a client
		return true, errNoMore
	default:
		text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // without a problem document the status says it
		return false, refusal(response.StatusCode, text)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	var id, event, data string
	for lines.Scan() {
		silence.Reset(tailSilence)
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			data = value
		case "":
			if lines.Text() == "" && event != "" {
				if err := t.print(event, data); err != nil {
					return true, err
				}
				t.last, event, data = cmp.Or(id, t.last), "", ""
			}
		}
	}
	return true, nil
}

func (t *tail) print(event, data string) error {
	if event == "problem" {
		var problem problemError
		if err := json.Unmarshal([]byte(data), &problem); err != nil {
			return fmt.Errorf("ask the worker: answer: %w", err)
		}
		if !t.blind {
			t.say(fmt.Sprintf("The worker cannot look: %v", &problem))
		}
		t.blind = true
		return nil
	}
	if t.blind {
		t.say("The worker looks again.")
	}
	t.blind = false
	var look ops.Look
	if err := json.Unmarshal([]byte(data), &look); err != nil {
		return fmt.Errorf("ask the worker: answer: %w", err)
	}
	if look.Skipped {
		t.say("More has come in than is shown here; see: bin/billhook events ls")
	}
	if len(t.known) > knownLines {
		t.known = map[string]ops.Line{}
	}
	var rows [][]string
	for _, l := range look.Items {
		if before, ok := t.known[l.Record()]; ok && before == l {
			continue
		}
		t.known[l.Record()] = l
		if t.lines != nil {
			t.lines.object(l)
			continue
		}
		rows = append(rows, t.cells(lineColumns, l))
	}
	t.rows(rows)
	return nil
}

const knownLines = 10_000

func (t *tail) say(text string) {
	if !t.line(map[string]any{"message": text}) {
		t.printf("-- %s\n", text)
	}
}

var lineColumns = console.Columns[ops.Line]()

// rows prints lines in columns, each as wide as its widest cell so far.
func (t *tail) rows(rows [][]string) {
	if t.widths == nil && len(rows) > 0 {
		names, _ := heads(lineColumns)
		t.widths, rows = make([]int, len(names)), slices.Insert(rows, 0, names)
	}
	for _, row := range rows {
		for i, text := range row {
			row[i] = cellOf(text)
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		for i, text := range row {
			row[i] = fmt.Sprintf("%-*s", t.widths[i], text)
		}
		t.printf("%s\n", own(strings.TrimRight(strings.Join(row, gap), " ")))
	}
}
