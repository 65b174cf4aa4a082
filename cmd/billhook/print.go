package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"billhook/internal/platform/audit"
)

// printf prints text for a person. It prints nothing with --json. Others may have written what the arguments hold: what
// a terminal would act on is escaped in each, so that it neither moves the cursor nor begins a line.
func (p *program) printf(format string, args ...any) {
	if p.asJSON || p.asCSV {
		return
	}
	shown := make([]any, len(args))
	for i, arg := range args {
		shown[i] = harmless(arg)
	}
	_, _ = fmt.Fprintf(p.stdout, format, shown...) // a closed terminal is no failure of the command
}

// own is a text that the program has laid out itself, with lines or colours: others have written nothing of it, or what
// they have written is escaped.
type own string

// harmless is an argument as a terminal may have it.
func harmless(arg any) any {
	switch arg := arg.(type) {
	case own:
		return string(arg)
	case []byte:
		return audit.Escape(string(arg))
	case fmt.Stringer, error:
		return audit.Escape(fmt.Sprint(arg))
	}
	switch reflect.ValueOf(arg).Kind() {
	case reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64, reflect.Float64:
		return arg
	default:
		return audit.Escape(fmt.Sprint(arg))
	}
}

// printJSON prints v as one JSON document, with what a terminal would act on escaped. It prints nothing
// without --json.
func (p *program) printJSON(v any) error {
	if !p.asJSON {
		return nil
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		_, _ = fmt.Fprintln(p.stdout, audit.EscapeJSON(line)) // a closed terminal is no failure of the command
	}
	return nil
}

func row(cells ...any) []string {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = fmt.Sprint(cell)
	}
	return texts
}

// when formats a moment for people, in UTC and to the second: as --since and --until take it, and as
// gcloud does. It is the only format of a time in text.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

type reason struct {
	why         string
	yes, dryRun bool
}

// required adds the flags, and fails the command without --why.
func (r *reason) required(command *cobra.Command) *cobra.Command {
	command.Flags().StringVar(&r.why, "why", "", "the reason, for the audit; required")
	command.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	command.Flags().BoolVar(&r.dryRun, "dry-run", false, "show what would be done, and do nothing")
	command.PreRunE = func(*cobra.Command, []string) error {
		if !r.dryRun && strings.TrimSpace(r.why) == "" {
			return usageError("--why: say why, for the audit")
		}
		return nil
	}
	return command
}

// confirmed asks for a change, and reports whether to go on. A dry run prints what is there before, and ends there.
func (r *reason) confirmed(p *program, command *cobra.Command, before any, word, do string) (bool, error) {
	if r.dryRun {
		return false, p.printJSON(before)
	}
	err := p.confirm(command.InOrStdin(), r.yes, word, do)
	return err == nil, err
}

// confirm asks the person to type word. Anything else is a no.
func (p *program) confirm(from io.Reader, yes bool, word, do string) error {
	if yes {
		return nil
	}
	if p.asJSON || p.asCSV {
		return usageError("--yes: with --json or -o csv nobody can be asked, so give it too")
	}
	p.printf("Type %s to %s: ", word, do)
	line, _ := bufio.NewReader(from).ReadString('\n') // end of input is a no
	if strings.TrimSpace(line) != word {
		return errors.New("nothing was changed")
	}
	return nil
}

// lines writes each line of text as a JSON object. It is for one writer.
type lines struct {
	to   io.Writer
	rest []byte
}

// writeLines has a command that runs for long print every line as a JSON object of its own, if the
// person wants JSON. From then on printf prints.
func (p *program) writeLines() {
	if p.asJSON {
		p.lines = &lines{to: p.stdout}
		p.stdout, p.asJSON = p.lines, false
	}
}

// line prints an object, and reports whether it has: lines of text are wanted otherwise.
func (p *program) line(object map[string]any) bool {
	if p.lines != nil {
		p.lines.object(object)
	}
	return p.lines != nil
}

func (l *lines) object(object any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(object)                                                                  // objects are strings, numbers and lists of them
	_, _ = io.WriteString(l.to, audit.EscapeJSON(strings.TrimSuffix(text.String(), "\n"))+"\n") // a closed terminal is no failure of the command
}

func (l *lines) Write(text []byte) (int, error) {
	l.rest = append(l.rest, text...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		if line := strings.TrimSpace(string(line)); line != "" {
			l.object(map[string]any{"message": line})
		}
		l.rest = rest
	}
}
