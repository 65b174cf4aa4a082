package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/audit"
)

func TestTwoPeopleAreTwoIdentities(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by    audit.Author
		first string
		want  error
		known string
	}{
		"an identity begins":                {audit.Author{Proof: audit.Identity, Name: "ada@shop.example"}, "", nil, "ada@shop.example"},
		"another identity approves":         {audit.Author{Proof: audit.Identity, Name: "bob@shop.example"}, "ada@shop.example", nil, "bob@shop.example"},
		"the same identity approves":        {audit.Author{Proof: audit.Identity, Name: "ada@shop.example"}, "ada@shop.example", audit.ErrSamePerson, "ada@shop.example"},
		"an identity that says token":       {audit.Author{Proof: audit.Identity, Name: "token-desk@shop.example"}, "ada@shop.example", nil, "token-desk@shop.example"},
		"a token begins":                    {audit.Author{Proof: audit.SharedToken, Name: "ada@shop.example"}, "", audit.ErrNoIdentity, "token:ada@shop.example"},
		"a token approves":                  {audit.Author{Proof: audit.SharedToken, Name: "bob"}, "ada@shop.example", audit.ErrNoIdentity, "token:bob"},
		"a token without a name begins":     {audit.Author{Proof: audit.SharedToken}, "", audit.ErrNoIdentity, "token"},
		"a name on this machine begins":     {audit.Author{Proof: audit.ThisMachine, Name: "ada"}, "", nil, "local:ada"},
		"another name on it approves":       {audit.Author{Proof: audit.ThisMachine, Name: "bob"}, "local:ada", nil, "local:bob"},
		"the same name on it approves":      {audit.Author{Proof: audit.ThisMachine, Name: "ada"}, "local:ada", audit.ErrSamePerson, "local:ada"},
		"somebody on this machine begins":   {audit.Author{Proof: audit.ThisMachine}, "", audit.ErrNoIdentity, "local"},
		"nobody begins":                     {audit.Author{}, "", audit.ErrNoIdentity, ""},
		"a name that nothing proves, alone": {audit.Author{Name: "ada"}, "", audit.ErrNoIdentity, ":ada"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, audit.TwoPeople(test.first, test.by), test.want)
			require.Equal(t, test.known, test.by.String())
		})
	}
}
