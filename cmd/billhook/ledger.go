package main

import "github.com/spf13/cobra"

func (p *program) ledgerCommand() *cobra.Command {
	command := &cobra.Command{Use: "ledger", Short: "Look after the books"}
	ask := p.worker(command)
	command.AddCommand(p.ledgerAdopt(ask))
	return command
}
