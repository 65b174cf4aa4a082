package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"billhook/internal/console"
	"billhook/internal/pipeline/dryrun"
)

func (p *program) tryCommand() *cobra.Command {
	var file, folder string
	var question dryrun.Try
	command := &cobra.Command{
		Use:   "try <event id> | try -f <file> --queue <queue>",
		Short: "Show what the worker would write, emit and call, and do nothing",
		Long: "Show what the worker would write, emit and call for an event whose message is kept, or for the message of a file.\n" +
			"The file has the message's body, or what dlq payload --json prints. Nothing is done.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) (err error) {
			if (len(args) == 1) == (file != "") {
				return usageError("name an event id, or a file with -f")
			}
			if file == "" {
				question.EventID = args[0]
			} else if err = readMessage(file, command.InOrStdin(), &question); err != nil {
				return err
			}
			if question.Catalog, err = readCatalog(folder); err != nil {
				return err
			}
			var answer dryrun.Trial
			if err := p.ask().post(command.Context(), "/v1/ops/events/try", question, &answer); err != nil {
				return err
			}
			p.fields(console.Columns[dryrun.Trial](), answer)
			return p.printJSON(answer)
		},
	}
	command.Flags().StringVarP(&file, "file", "f", "", "a file with the message, - for standard input")
	command.Flags().StringVar(&folder, "catalog", "", "a folder whose .yaml files replace those of the running catalog")
	command.Flags().StringVar(&question.Queue, "queue", "", "the queue, by id or alias; needed with -f")
	command.Flags().StringVar(&question.Tenant, "tenant", "", "the tenant, where several know the id")
	return command
}

func readMessage(file string, stdin io.Reader, question *dryrun.Try) error {
	data, err := readFile(file, stdin)
	if err != nil {
		return err
	}
	var letter struct {
		Queue string `json:"queue"`
		dryrun.TriedMessage
	}
	if json.Unmarshal(data, &letter) == nil && letter.Attributes != nil {
		question.Message = &letter.TriedMessage
		if question.Queue == "" {
			question.Queue = letter.Queue
		}
	} else {
		question.Message = &dryrun.TriedMessage{Data: data}
	}
	switch {
	case !json.Valid(data):
		return usageError("-f: the file is not JSON")
	case question.Message.Data == nil && question.Message.Base64 == nil:
		return usageError("-f: the dead letter is there without its payload: dlq payload shows it to who says --why")
	case question.Queue == "":
		return usageError("--queue: say which queue the message is for")
	}
	return nil
}

func readCatalog(folder string) (map[string]string, error) {
	if folder == "" {
		return nil, nil
	}
	names, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err == nil && len(names) == 0 {
		err = usageError("the folder has no .yaml file")
	}
	files := map[string]string{}
	for _, name := range names {
		text, failed := os.ReadFile(filepath.Clean(name))
		files[filepath.Base(name)], err = string(text), errors.Join(err, failed)
	}
	if err != nil {
		return nil, fmt.Errorf("--catalog: %w", err)
	}
	return files, nil
}
