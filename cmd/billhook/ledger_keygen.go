package main

import (
	"crypto/rand"

	"github.com/spf13/cobra"

	"billhook/internal/apps/ledger/seal"
)

// ledgerKeygen makes the key that signs proofs. It asks nobody and keeps nothing.
func (p *program) ledgerKeygen() *cobra.Command {
	var name string
	command := &cobra.Command{
		Use: "keygen", Short: "Make a key that signs proofs: the private part for the worker's secret, the other for those who check", Args: cobra.NoArgs,
		Long: "The private key is the value of LEDGER_SIGNING_KEY. Whoever has it can sign proofs in the name of this installation. The\n" +
			"verifier key is public: with it anybody checks proofs, by ledger check-proof --key. Neither is kept here.",
		RunE: func(*cobra.Command, []string) error {
			keys, err := seal.NewKeys(rand.Reader, name)
			if err != nil {
				return err
			}
			p.printf("Private key, for the secret LEDGER_SIGNING_KEY of the worker:\n\n  %s\n\n", keys.Private)
			p.printf("Verifier key, for everybody who checks proofs:\n\n  %s\n", keys.Verifier)
			return p.printJSON(keys)
		},
	}
	command.Flags().StringVar(&name, "name", "", "who signs, such as shop.example.com/books: it stands at each signature")
	_ = command.MarkFlagRequired("name") // the flag is there
	return command
}
