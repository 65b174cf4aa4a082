package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"billhook/internal/apps/ledger/seal"

	"github.com/spf13/cobra"
)

// compared is what a comparison of seals has come to.
type compared struct {
	Kept     int64          `json:"kept_seals" show:"Kept seals"`
	Findings []seal.Finding `json:"findings" show:"Findings"`
	// Unkept are the tenants of which the file has no seal: of them nobody finds that all was sealed again.
	Unkept []string `json:"tenants_without_kept_seals,omitempty" show:"Tenants without kept seals"`
}

func (p *program) compare() *cobra.Command {
	b := &books{program: p}
	return &cobra.Command{
		Use: "compare <file>", Short: "Compare the seals with those exported to a file before; - is the standard input", Args: cobra.ExactArgs(1),
		Long: "Who can write to the whole store can seal everything again, and it verifies. That is found here, with a file that ledger\n" +
			"export --seals has written before and that they could not write to. It exits with 1 where anything is found.",
		RunE: func(command *cobra.Command, args []string) error {
			kept, err := readSeals(args[0], command.InOrStdin())
			if err != nil {
				return err
			}
			tenants, err := b.tenants(command.Context())
			c, of := compared{Findings: []seal.Finding{}}, map[string]bool{}
			for _, s := range kept { // the whole chain of its tenant may be gone
				of[s.Tenant] = true
			}
			c.Unkept = slices.DeleteFunc(tenants, func(tenant string) bool { return of[tenant] })
			for _, tenant := range slices.Sorted(maps.Keys(of)) {
				there, failed := b.sealsOf(command.Context(), tenant)
				if err = errors.Join(err, failed); err != nil {
					return err
				}
				found, n := seal.AgainstKept(tenant, kept, there)
				c.Kept, c.Findings = c.Kept+n, append(c.Findings, found...)
			}
			if err = errors.Join(err, shows(p, c)); err == nil && len(c.Findings) > 0 {
				err = fmt.Errorf("the seals are not those that were kept: %d findings", len(c.Findings))
			}
			return err
		},
	}
}

func readSeals(file string, stdin io.Reader) (seals []seal.Seal, err error) {
	text, err := readFile(file, stdin)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var s seal.Seal
		switch err := decoder.Decode(&s); {
		case errors.Is(err, io.EOF):
			return seals, nil
		case err != nil:
			return nil, fmt.Errorf("%s: seal %d is not JSON: %w", file, len(seals)+1, err)
		}
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("%s: seal %d of %s: %w", file, s.Number, s.Tenant, err)
		}
		seals = append(seals, s)
	}
}

func (p *program) checkProof() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use: "check-proof <file>", Short: "Check a proof against exported seals, offline; - is the standard input", Args: cobra.ExactArgs(1),
		Long: "The file is what ledger prove -o json prints, or the proof in it. Its seal must be among those that ledger export --seals has written.",
		RunE: func(command *cobra.Command, args []string) error {
			text, err := readFile(args[0], command.InOrStdin())
			if err != nil {
				return err
			}
			kept, err := readSeals(file, command.InOrStdin())
			if err != nil {
				return err
			}
			var printed seal.Proof
			if json.Unmarshal(text, &printed) == nil && printed.Proof != "" {
				text = []byte(printed.Proof)
			}
			proven, err := seal.CheckProof(text, kept)
			if err != nil {
				return err
			}
			p.printf("The entry is number %d of %d in seal %d of tenant %s, which is the one that was kept.\n  seal %s\n  root %s\n%s\n",
				proven.Index+1, proven.Count, proven.Seal, proven.Tenant, proven.SealHash, proven.Root, proven.Entry)
			return p.printJSON(proven)
		},
	}
	command.Flags().StringVar(&file, "seals", "", "a file with seals that were kept elsewhere; required")
	_ = command.MarkFlagRequired("seals") // it is there
	return command
}
