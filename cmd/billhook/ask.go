package main

import (
	"github.com/spf13/cobra"
)

func texts[S ~string](values ...S) (all []string) {
	for _, value := range values {
		all = append(all, string(value))
	}
	return all
}

// under is a command that only has others below it, and what asks for them.
func (p *program) under(name, short string, tenants bool) (*cobra.Command, func() client) {
	command := &cobra.Command{Use: name, Short: short}
	if tenants {
		command.PersistentFlags().String("tenant", "", "the tenant, where messages name one")
	}
	return command, p.worker(command)
}
