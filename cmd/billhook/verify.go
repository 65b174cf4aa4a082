package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"billhook/internal/apps/ledger/seal"
)

type verification struct {
	Tenants  []string `json:"tenants"`
	Seals    int64    `json:"seals"`
	Entries  int64    `json:"entries"`
	Unsealed int64    `json:"unsealed"`
	Kept     int64    `json:"kept_seals"`
	// Unkept are the tenants of which the file has no seal: of them nobody finds that all was sealed again.
	Unkept   []string       `json:"tenants_without_kept_seals,omitempty"`
	Findings []seal.Finding `json:"findings"`
}

func (b *books) verify() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use: "verify", Short: "Check every seal and every entry, and name what was changed, taken out, put in or moved", Args: cobra.NoArgs,
		Long: "It checks the books of all tenants, or those that --tenant names, a part at a time. It also names entries that no event\n" +
			"and no person has made, and those that came into a month after that was closed. Whoever can write to the whole store can seal everything again: that is found\n" +
			"with --seals, a file that ledger export --seals has written before and that they could not write to. It exits with 1\n" +
			"where anything is found.",
		RunE: func(command *cobra.Command, _ []string) error {
			v := verification{Findings: []seal.Finding{}}
			kept, err := readSeals(file, command.InOrStdin())
			if err != nil {
				return err
			}
			if err := b.verifyAll(command.Context(), &v, kept); err != nil {
				return err
			}
			b.printf("%d seals, %d sealed entries and %d unsealed ones of %d tenants: %d findings.\n", v.Seals, v.Entries, v.Unsealed, len(v.Tenants), len(v.Findings))
			if err := b.printJSON(v); err != nil {
				return err
			}
			if len(v.Findings) > 0 {
				return fmt.Errorf("the books do not verify: %d findings", len(v.Findings))
			}
			return nil
		},
	}
	command.Flags().StringVar(&b.tenant, "tenant", "", "whose books; empty: those of all tenants")
	command.Flags().StringVar(&file, "seals", "", "a file with seals that were kept elsewhere; - is the standard input")
	return command
}

func (b *books) verifyAll(ctx context.Context, v *verification, kept []seal.Seal) error {
	v.Tenants = []string{b.tenant}
	all := b.tenant == ""
	if all {
		var err error
		if v.Tenants, err = b.tenants(ctx); err != nil {
			return err
		}
		for _, s := range kept { // its whole chain may be gone
			v.Tenants = append(v.Tenants, s.Tenant)
		}
		slices.Sort(v.Tenants)
		v.Tenants = slices.Compact(v.Tenants)
	}
	for _, b.tenant = range v.Tenants {
		if err := b.verifyPart(ctx, v, b.tenant, "/v1/ops/journal/verify", b.query()); err != nil {
			return err
		}
		if err := b.verifyKept(ctx, v, kept); err != nil {
			return err
		}
	}
	if !all {
		return nil
	}
	return b.verifyPart(ctx, v, "no tenant", "/v1/ops/journal/verify/rest", url.Values{})
}

func (b *books) verifyPart(ctx context.Context, v *verification, name, path string, values url.Values) error {
	for {
		var part seal.Verified
		if err := b.ask().get(ctx, path+"?"+values.Encode(), &part); err != nil {
			return err
		}
		v.Seals, v.Entries, v.Unsealed = v.Seals+part.Seals, v.Entries+part.Entries, v.Unsealed+part.Unsealed
		b.found(v, part.Findings...)
		if part.Next == "" {
			return nil
		}
		b.printf("%s: so far %d seals, %d entries, %d findings\n", name, v.Seals, v.Entries, len(v.Findings))
		values.Set("page", part.Next)
	}
}

func (b *books) found(v *verification, findings ...seal.Finding) {
	for _, f := range findings {
		in := ""
		if f.Seal > 0 {
			in = ", seal " + strconv.FormatInt(f.Seal, 10)
		}
		b.printf("%s: %s of %s%s: %s\n", f.Kind, f.Document, cmp.Or(f.Tenant, "no tenant"), in, f.Detail)
	}
	v.Findings = append(v.Findings, findings...)
}

func (b *books) verifyKept(ctx context.Context, v *verification, kept []seal.Seal) error {
	switch {
	case kept == nil:
		return nil
	case !slices.ContainsFunc(kept, func(s seal.Seal) bool { return s.Tenant == b.tenant }):
		b.printf("%s: the file has no seal of it, so nobody would find that its books were sealed again\n", b.tenant)
		v.Unkept = append(v.Unkept, b.tenant)
		return nil
	}
	there, err := pages[seal.Seal](ctx, b.ask(), "/v1/ops/journal/seals", b.query())
	if err != nil {
		return err
	}
	found, compared := seal.AgainstKept(b.tenant, kept, there)
	b.found(v, found...)
	v.Kept += compared
	return nil
}

func readSeals(file string, stdin io.Reader) ([]seal.Seal, error) {
	if file == "" {
		return nil, nil
	}
	seals := []seal.Seal{}
	text, err := readFile(file, stdin)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
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

func (b *books) prove() *cobra.Command {
	var file string
	command := b.whose(&cobra.Command{
		Use: "prove <event or entry>", Short: "Print the proof that an entry stands in its seal, for ledger check-proof",
		Long: "The proof holds the entry, and the hashes up to the root of its seal.", Args: cobra.ExactArgs(1),
	})
	command.RunE = func(command *cobra.Command, args []string) error {
		var proof seal.Proof
		path := "/v1/ops/journal/entries/" + url.PathEscape(args[0]) + "/proof?" + b.query().Encode()
		if err := b.ask().get(command.Context(), path, &proof); err != nil {
			return err
		}
		if b.asJSON {
			return b.printJSON(proof)
		}
		return b.write(file, func(to io.Writer) (int, error) {
			_, err := io.WriteString(to, proof.Proof)
			return 1, err
		})
	}
	command.Flags().StringVar(&file, "out", "", "the file to write; empty: the terminal")
	return command
}

func (b *books) checkProof() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use: "check-proof <file>", Short: "Check a proof against seals that were kept, without asking anybody; - is the standard input", Args: cobra.ExactArgs(1),
		Long: "The seal of the proof must be among those of the file, which ledger export --seals has written.",
		RunE: func(command *cobra.Command, args []string) error {
			text, err := readFile(args[0], command.InOrStdin())
			if err != nil {
				return err
			}
			kept, err := readSeals(file, command.InOrStdin())
			if err != nil {
				return err
			}
			proven, err := seal.CheckProof(text, kept)
			if err != nil {
				return err
			}
			b.printf("The entry is number %d of %d in seal %d of tenant %s, which is the one that was kept.\n  seal %s\n  root %s\n%s\n",
				proven.Index+1, proven.Count, proven.Seal, proven.Tenant, proven.SealHash, proven.Root, proven.Entry)
			return b.printJSON(proven)
		},
	}
	command.Flags().StringVar(&file, "seals", "", "a file with seals that were kept elsewhere; required")
	_ = command.MarkFlagRequired("seals") // it is there
	return command
}
