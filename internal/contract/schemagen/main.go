// Command schemagen writes the JSON Schemas of the messages into a folder.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"billhook/catalog"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("name the folder of the schemas")
	}
	c, err := catalog.Load("")
	if err != nil {
		return err
	}
	schemas, err := c.Contracts.Schemas()
	if err != nil {
		return err
	}
	for name, text := range schemas {
		if err := os.WriteFile(filepath.Join(args[0], name), text, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
